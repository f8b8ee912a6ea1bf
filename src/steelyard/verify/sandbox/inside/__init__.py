"""What runs in the fresh interpreters of the sandbox: standard library only, imported under the name `jail`.

The server is started as `python -c` with this folder as the package `jail`, without site-packages, so these modules
import each other relatively and nothing else of Steelyard.
"""
