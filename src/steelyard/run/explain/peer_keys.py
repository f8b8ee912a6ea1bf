"""Keys of other trainers that decide where and how fast, what is logged, or that another key switches on."""

TRL_OTHERS = frozenset(
    """
    accelerate_config accelerator_config activation_checkpointing activation_checkpointing_kwargs
    attn_implementation auto_find_batch_size average_tokens_across_devices batch_eval_metrics bf16 bf16_full_eval
    bnb_4bit_quant_storage bnb_4bit_quant_type cache_implementation cast_lm_head_to_fp32 chat_template_kwargs config
    data_seed dataloader_drop_last dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers
    dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor dataset_config dataset_name
    dataset_streaming dataset_test_split dataset_train_split datasets ddp_backend ddp_broadcast_buffers
    ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed disable_dropout
    disable_tqdm do_eval do_predict do_train ds3_gather_for_generation dtype enable_jit_checkpoint
    entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target eval_accumulation_steps eval_delay
    eval_do_concat_batches eval_on_start eval_steps eval_strategy eval_use_gather_object fp16 fp16_full_eval fsdp
    fsdp_config full_determinism generation_kwargs gradient_checkpointing gradient_checkpointing_kwargs
    greater_is_better hub_always_push hub_model_id hub_private_repo hub_revision hub_strategy hub_token
    ignore_bias_buffers ignore_data_skip include_for_metrics include_num_input_tokens_seen label_names
    label_smoothing_factor length_column_name liger_kernel_config load_best_model_at_end load_in_4bit load_in_8bit
    local_rank log_completions log_completions_hub_repo log_level log_level_replica log_multimodal log_on_each_node
    log_unique_prompts logging_dir logging_first_step logging_nan_inf_filter logging_steps logging_strategy
    lora_alpha lora_dropout lora_modules_to_save lora_r lora_target_modules lora_target_parameters lora_task_type
    lr_scheduler_kwargs max_tool_calling_iterations metric_for_best_model model_init_kwargs model_revision
    neftune_noise_alpha num_completions_to_print num_generations_eval num_train_epochs optim_args
    optim_target_modules output_dir overwrite_output_dir pad_to_multiple_of parallelism_config
    per_device_eval_batch_size prediction_loss_only project push_to_hub ref_model_mixup_alpha ref_model_sync_steps
    remove_unused_columns report_to restore_callback_states_from_checkpoint resume_from_checkpoint reward_funcs
    reward_model_name_or_path run_name sapo_temperature_neg sapo_temperature_pos save_on_each_node save_only_model
    save_steps save_strategy save_total_limit shuffle_dataset skip_memory_metrics streaming test_split_size tf32
    torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps trackio_bucket_id
    trackio_space_id trackio_static_space_id train_sampling_strategy transformers_continuous_batching_config
    trust_remote_code use_bnb_nested_quant use_cache use_cpu use_dora use_liger_kernel use_peft use_rslora
    use_transformers_continuous_batching use_transformers_paged vespo_k_neg vespo_k_pos vespo_lambda_neg
    vespo_lambda_pos vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_group_port vllm_max_model_length
    vllm_mode vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
    vllm_structured_outputs_regex vllm_tensor_parallel_size
    """.split()  # noqa: SIM905  a page of names reads better than a page of quotes
)
"""TRL 1.16.0: GRPOConfig with transformers' TrainingArguments, ModelConfig and ScriptArguments."""

VERL_SECTIONS = frozenset(
    """
    custom_reward_function distillation global_profiler ray_kwargs reward reward_model sandbox_fusion skip trainer
    transfer_queue actor_rollout_ref.ref actor_rollout_ref.model actor_rollout_ref.hybrid_engine
    actor_rollout_ref.nccl_timeout actor_rollout_ref.actor.fsdp_config actor_rollout_ref.actor.megatron
    actor_rollout_ref.actor.checkpoint actor_rollout_ref.actor.profiler actor_rollout_ref.actor.qat critic.fsdp critic.model
    critic.checkpoint critic.profiler critic.megatron algorithm.pf_ppo hydra defaults config_path config_name config_dir
    """.split()  # noqa: SIM905
)
"""verl 0.9.1: sections of which every key is taken."""

VERL_OTHERS: dict[str, frozenset[str]] = {
    "actor_rollout_ref.actor": frozenset(
        """
        rollout_n strategy ppo_micro_batch_size ppo_micro_batch_size_per_gpu use_dynamic_bsz ppo_max_token_len_per_gpu
        tau_pos tau_neg freeze_vision_tower calculate_entropy calculate_sum_pi_squared use_prefix_grouper use_torch_compile
        shuffle data_loader_seed use_fused_kernels ulysses_sequence_parallel_size entropy_from_logits_with_chunking
        entropy_from_logits_chunk_size entropy_checkpointing pad_to_length use_remove_padding policy_loss.clip_cov_ratio
        policy_loss.clip_cov_lb policy_loss.clip_cov_ub policy_loss.kl_cov_ratio policy_loss.ppo_kl_coef
        policy_loss.dro_beta optim.optimizer optim.optimizer_impl optim.total_training_steps optim.clip_grad
        optim.min_lr_ratio optim.num_cycles optim.zero_indexed_step optim.warmup_style optim.override_optimizer_config
        """.split()  # noqa: SIM905
    ),
    "actor_rollout_ref.rollout": frozenset(
        """
        name mode nnodes n_gpus_per_node full_determinism seed prompt_length response_length dtype gpu_memory_utilization
        ignore_eos enforce_eager cudagraph_capture_sizes free_cache_engine tensor_model_parallel_size data_parallel_size
        expert_parallel_size pipeline_model_parallel_size max_num_batched_tokens max_model_len max_num_seqs
        enable_chunked_prefill enable_prefix_caching logprobs_mode scheduling_policy load_format layered_summon
        log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz
        log_prob_max_token_len_per_gpu disable_log_stats do_sample over_sample_rate multi_stage_wake_up engine_kwargs
        val_kwargs router_config_path multi_turn calculate_log_probs agent checkpoint_engine trace skip_tokenizer_init
        enable_rollout_routing_replay moe_load_balance_metrics_interval profiler prometheus quantization
        quantization_config_file mtp qat disaggregation
        """.split()  # noqa: SIM905
    ),
    "critic": frozenset(
        """
        rollout_n strategy enable ppo_mini_batch_size ppo_micro_batch_size ppo_micro_batch_size_per_gpu use_dynamic_bsz
        ppo_max_token_len_per_gpu forward_max_token_len_per_gpu ppo_epochs shuffle data_loader_seed loss_agg_mode
        loss_scale_factor forward_micro_batch_size forward_micro_batch_size_per_gpu ulysses_sequence_parallel_size
        grad_clip optim
        """.split()  # noqa: SIM905
    ),
    "data": frozenset(
        """
        tokenizer use_shm train_files val_files train_max_samples val_max_samples prompt_key reward_fn_key
        max_prompt_length gen_batch_size val_batch_size tool_config_path function_tool_path return_raw_input_ids
        return_raw_chat return_full_prompt shuffle seed dataloader_num_workers image_patch_size validation_shuffle
        filter_overlong_prompts filter_overlong_prompts_workers truncation image_key video_key audio_key trust_remote_code
        custom_cls return_multi_modal_inputs apply_chat_template_kwargs mm_processor_kwargs
        """.split()  # noqa: SIM905
    ),
    "algorithm": frozenset(
        """
        kl_ctrl.horizon kl_ctrl.target_kl filter_groups.metric filter_groups.max_inflight_gen_batches
        rollout_correction.rollout_rs_threshold rollout_correction.loss_type
        """.split()  # noqa: SIM905
    ),
}
"""verl 0.9.1: keys by section; a key below one of them belongs to it."""
