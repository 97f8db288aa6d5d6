"""What other tools call our settings: TRL and transformers, axolotl, LLaMA-Factory, torchtune, accelerate, DeepSpeed,
Megatron, Lightning, MosaicML and SLURM. Data for suggestions; loaded only for a misspelt spec.

A name is split into words, and words that mean the same are one word, so that a phrase stands for every spelling of it:
`save interval` is `save_steps`, `saveEvery` and `saving-frequency`.
"""

from __future__ import annotations

MEANT: dict[str, str] = {
    "train.epochs": "epochs; num epochs; train epochs; max epochs; max duration",
    "train.steps": "max steps; train steps; total steps; training iterations; num steps; steps; iterations",
    "train": "pretrain; pretrain path; restore from path; restore path; model name; model name or path; base model; "
    "pretrained model; model path; model id; model file path; checkpointer checkpoint dir; finetune; dataset; "
    "datasets; dataset name; data path; data file; train file; train data; dataset path; train dataset; train ds file "
    "path; train file path",
    "model.attn": "attention; attention implementation; flash attention; sdpa attention; sdp attention; xformers "
    "attention; eager attention; attention backend; attention type",
    "model.chat_template": "template; prompt template; chat template path; chat template file; conversation template",
    "model.tokens": "add tokens; added tokens; new tokens; add special tokens; additional special tokens",
    "model.eos": "eos token; end of turn; stop token",
    "model.pad": "pad token; padding token",
    "model.dtype=bf16": "load in 16bit; load in 16 bit",
    "model.dtype": "torch dtype; model dtype; weights dtype; parameter dtype; pure bf16; pure fp16; load dtype",
    "model.rope": "rope scaling; rope theta; yarn",
    "model.trust_remote_code": "remote code; trust remote; trust code",
    "model.pickle": "pickled weights; allow pickle; bin weights",
    "model.revision": "model revision; revision of model; model commit; model branch",
    "model.config": "model config; architecture",
    "lora": "train type; tuner type; tuner; tuning type; adapter type; adapter; peft; peft scheme; peft type; "
    "peft method; peft config; low rank adapter; finetuning type; "
    "adapters",
    "lora.rank": "lora r; r; rank; adapter rank",
    "lora.alpha": "lora alpha; lora scaling",
    "lora.targets": "target modules; lora target; lora modules; lora target modules; lora target linear; lora attn "
    "modules; lora layers",
    "lora.block_size": "oft block size",
    "lora.rslora": "use rslora; peft use rslora; rank stabilized; rank stabilised lora",
    "lora.dora": "use dora; peft use dora",
    "lora.parameters": "target parameters; lora target parameters",
    "lora.modules_to_save": "lora modules to save; additional target; save modules; trainable modules",
    "lora.lr_ratio": "loraplus lr ratio; loraplus; lora plus; lora plus lr ratio",
    "lora.from": "lora model dir; adapter name or path; adapter path; resume adapter; adapter checkpoint; init adapter",
    "lora.embedding_lr": "loraplus lr embedding",
    "oft": "orthogonal; orthogonal finetuning; oftv2; qoft",
    "freeze": "freeze tuning; frozen",
    "freeze.except_parameters": "unfrozen parameters",
    "freeze.except_last": "freeze trainable layers; trainable layers; num layer trainable; unfreeze layers",
    "freeze.layer_modules": "freeze trainable modules",
    "freeze.except_modules": "freeze extra modules",
    "lora.bits=8": "load in 8bit; load in 8 bit; bnb 8bit; int8 training",
    "lora.bits": "quantization bit; bits; quantize; quantization; quantization bits; quant",
    "lora.double_quant": "double quant; nested quant; use bnb nested quant; bnb 4bit use double quant; double "
    "quantization",
    "qlora": "load in 4bit; bnb 4bit; quantize 4bit",
    "data.seed": "data random seed; mixture seed; dataset seed",
    "data.workers": "dataset num proc; dataset processes; preprocessing workers; map workers; data workers; tokenize "
    "workers; preprocessing num workers",
    "data.holdout": "val size; val set size; eval size; test size; val split; validation split; eval ratio; val "
    "ratio; test ratio; eval share; val fraction; val split fraction; val split ratio; test split fraction; split "
    "dataset ratio; dataset split ratio; split ratio; dev ratio; dev size",
    "data.take": "max samples; num samples; max train samples; sample limit; subset; max rows; max examples",
    "data.max_tokens": "max sample len; excess length; drop long; max row tokens",
    "data.shuffle": "shuffle; shuffle data; shuffle dataset; shuffle merged datasets; shuffle train data",
    "data.format": "dataset format; dataset type; data format; data type; formatting; dataset shape",
    "data.unique": "dataset exact deduplication; deduplicate; exact deduplication; drop duplicates",
    "data.min_tokens": "min sample len; min length; min tokens; min seq length",
    "data.system": "system prompt; default system; system message",
    "data.prompt": "prompt column; prompt field; prompt key; question column; input column; instruction column; field "
    "instruction; query column",
    "data.columns": "text field; dataset text field; content field; text column; text key; field messages; column "
    "mapping; remap columns",
    "method": "adv estimator; advantage estimator; adv estimator of rl; rl; stage; training stage; training type; "
    "objective; alignment; task; trainer; trainer type; algorithm",
    "method.assistant_only": "assistant only loss; assistant loss; loss on assistant; mask user; roles to train",
    "method.completion_only": "completion only loss; loss on completion; response only; response loss; mask prompt; "
    "mask history; train on responses only; answer only loss; loss on answer; answer only",
    "method.completion_only=!": "train on inputs; train on prompt; loss on prompt",
    "method.beta": "kl loss coefficient; init kl coefficient; init kl coef; kl ctrl coefficient; kl reward "
    "coefficient; beta; rl beta; dpo beta; pref beta; kl coefficient; kl weight; kl beta; kl penalty; orpo alpha; "
    "reference policy kl penalty; reference kl penalty; kl penalty coefficient; reference kl coefficient",
    "method.loss": "loss type; pref loss; preference loss; dpo loss; loss function; loss name",
    "method.max_prompt": "max prompt length; prompt length; max prompt tokens",
    "method.generations": "num generations; num samples per prompt; rollouts; group size; samples per prompt; num "
    "return sequences; rollout n; responses per prompt; completions per prompt; rollouts per prompt; generations "
    "per prompt",
    "method.teacher": "teacher model; teacher model name or path; teacher model id; teacher name",
    "method.max_completion": "generate max length; generation max len; generate max len; max completion length; max "
    "new tokens; response length; max response length; completion length; max tokens; max generation length",
    "method.temperature": "sampling temperature; rollout temperature; generation temperature",
    "method.rewards": "reward functions; reward function; reward weights; reward model; reward; rewards",
    "method.epsilon": "clip range; cliprange; clip ratio; clip eps; clip epsilon; epsilon low; clip ratio low; ppo "
    "clip; policy clip; eps clip",
    "method.epsilon_high": "clip ratio high; clip higher; clip range high; eps clip high",
    "method.top_p": "sampling top p; rollout top p; generation top p",
    "method.top_k": "sampling top k; rollout top k; generation top k",
    "method.iterations": "num iterations; ppo epochs; inner epochs; updates per batch",
    "method.vllm": "use vllm; vllm",
    "method.vllm.mode": "vllm mode",
    "method.vllm.gpu_memory": "vllm gpu memory; gpu memory utilization; gpu memory fraction",
    "method.sync_reference": "ref model; reference model; sync ref model; update reference",
    "method.scale_rewards": "normalize rewards; normalise rewards; normalize advantages; normalise advantages; reward "
    "normalization; advantage normalization; scale advantages; whiten advantages; advantage whitening",
    "method=rloo": "leave one out; leave one out baseline; rloo baseline",
    "method.desirable": "desirable weight; kto chosen weight",
    "method.undesirable": "undesirable weight; kto rejected weight",
    "hardware": "gpus; num gpus; gpus per node; processes; num processes; nproc per node; processes per node; "
    "devices; gpu type; accelerator; world size; gpu; machine; gres; device",
    "hardware=cpu": "use cpu; no cuda; cpu only; force cpu; no gpu",
    "nodes": "num nodes; nnodes; machines; num machines; hosts; replicas",
    "strategy": "fsdp version; strategy version; use fsdp; deepspeed stage; deepspeed; deepspeed config; fsdp config; "
    "config file; accelerate config; zero; zero stage; zero optimization; zero optimization stage; sharding; sharding "
    "strategy; distributed type; parallelism; distributed strategy; stage; distributed backend; parallel mode; "
    "parallel strategy",
    "strategy.offload": "offload; cpu offload; offload optimizer; offload param; offload optimizer device; offload "
    "param device; offload params; fsdp offload",
    "strategy.overlap_comm": "overlap communication; overlap gradient reduction",
    "strategy.allgather_bucket": "allgather bucket size; all gather bucket; gather bucket size",
    "strategy.reduce_bucket": "reduce bucket size; reduce scatter bucket size; gradient bucket size",
    "strategy.round_robin_gradients": "round robin",
    "strategy.reshard": "reshard after forward; reshard after forward pass",
    "strategy.shard": "shard size; dp shard size; shard group size; dp shard; data parallel shard degree",
    "strategy.state_dict": "state dict type; checkpoint format; sharded state dict",
    "strategy.context_parallel": "context parallel size; cp; cp size; context parallel degree",
    "precision": "mixed precision; amp; autocast; compute dtype; training dtype",
    "precision.tf32": "allow tf32; enable tf32",
    "batch.gbs": "global batch size; train batch size; effective batch size; total batch size; batch tokens; global "
    "batch; total train batch size; examples per step; samples per step; sequences per step; target examples per step",
    "batch.micro": "ppo micro batch size per gpu; ppo micro batch size; micro train batch size; forward micro batch "
    "size; micro batch size; batch size; per device batch size; per device train batch size; per gpu batch size; per "
    "gpu train batch size; device batch size; train micro batch size per gpu; mbs; per device; device train "
    "microbatch size; local batch size",
    "batch.accum": "gradient accumulation; gradient accumulation steps; accumulate gradient batches; gradient "
    "accumulation batches; accumulation; accumulation steps",
    "batch.seq": "max seq length; seq length; sequence length; max length; cutoff len; context length; block size; "
    "model max length; max tokens per sequence; context window; max context; context; n ctx; max position; truncation "
    "length; pack length; packed length; pack size",
    "batch.packing": "sample packing; pack; packed; pack sequences; neat packing; sequence packing; pack dataset; "
    "dataset packed; group texts",
    "batch.packing.strategy": "packing strategy; packing method; packing algorithm",
    "batch.packing.isolate": "packing isolate; document mask; block diagonal mask; intra document mask",
    "batch.packing.eval": "eval packing; eval sample packing; pack eval",
    "batch.padding_free": "padding free; flatten; varlen; remove padding; unpad; no padding",
    "batch.mean": "average tokens across devices; loss reduction; loss mean; token mean; loss normalization",
    "optimizer": "optim; optimizer type; optimizer name",
    "optimizer=adafactor": "adafactor",
    "optimizer.lr": "actor learning rate; actor lr; policy lr; policy learning rate; learning rate; peak lr; max lr; "
    "base lr; initial lr; step size",
    "optimizer.betas": "adam beta1; adam beta2; beta1; beta2; adam betas; beta 1; beta 2",
    "optimizer.eps": "adam epsilon; epsilon; adam eps; optimizer epsilon",
    "optimizer.weight_decay": "wd; optimizer decay; decay weight; l2; weight decay rate; adam weight decay; adam wd",
    "optimizer.clip": "max gradient norm; gradient clipping; gradient clip; clip gradient norm; gradient clip val; "
    "clip norm; gradient clip norm; gradient norm; clip gradient; max norm; gradient clip value",
    "schedule": "lr scheduler; scheduler; lr scheduler type; lr schedule; scheduler type; lr decay style; decay "
    "style; lr scheduler name; annealing",
    "schedule.warmup": "warmup; warmup steps; warmup ratio; num warmup steps; lr warmup; lr warmup fraction; warmup "
    "iterations; warmup fraction; warm up; lr warmup steps; warmup proportion; warmup epochs",
    "schedule.min_lr": "min lr; min lr rate; minimum learning rate; lr min; eta min; final lr; end lr; min lr ratio; "
    "cosine min lr ratio; lr floor; lr end; lr min ratio; final lr fraction; end lr ratio; lr end ratio; min lr "
    "fraction",
    "schedule.cycles": "num cycles; cycles; lr scheduler num cycles; restarts",
    "schedule.power": "lr scheduler power; poly power",
    "optimizer.targets": "optim target modules; galore target; galore targets",
    "schedule.decay": "num decay steps; decay steps; lr decay steps; cooldown; decay ratio; cooldown steps; anneal "
    "steps",
    "model.compile": "compile; regional compilation; regional compile; use regional compilation; compile layers; "
    "compile blocks; compile each layer; dynamo use regional compilation",
    "memory.liger": "liger kernel; liger; liger fused linear cross entropy; liger rms norm; liger rope; liger swiglu; "
    "liger glu activation; fused kernels; liger layer norm",
    "memory.checkpointing": "fsdp activation checkpointing; gradient checkpointing; activation checkpointing; "
    "checkpoint activations; recompute; recompute activations; rematerialization; remat; gc; recompute granularity; "
    "activation recomputation",
    "memory.checkpointing=!": "disable gradient checkpointing; no gradient checkpointing",
    "memory.checkpointing.reentrant": "reentrant; gradient checkpointing kwargs; reentrant checkpointing; gradient "
    "checkpointing reentrant",
    "memory.checkpointing.selective": "selective ac; selective activation checkpointing; selective checkpointing; ac "
    "option; selective recompute; selective recomputation; ac mode",
    "memory.offload_activations": "activation offloading; activation offload; activations offload; cpu activations; "
    "activation cpu offload",
    "eval.every": "eval; eval steps; eval strategy; evals per epoch; val every; eval every; eval during training; val "
    "check every",
    "eval.patience": "early stopping patience; early stopping; early stop; patience of early stopping; early stopping "
    "steps; stop early; early stopping metric",
    "eval.micro": "eval batch size; val batch size; per device eval batch size; batch size val; eval micro batch "
    "size; per gpu eval batch size",
    "eval.data": "eval dataset; eval file; eval files; eval data; eval path; validation file; validation data; "
    "validation dataset; validation files; val file; val data; val dataset; val path; test file; test data; test "
    "dataset; test datasets; evaluation data; evaluation file; evaluation dataset; dev file; dev data; eval data path; "
    "eval dataset path; eval data file; eval dataset file; eval file path; dev dataset; dev path",
    "eval.split": "eval split; val split name; test split; eval dataset split",
    "eval.tasks": "eval tasks; lm eval tasks; benchmarks; lm harness tasks; harness",
    "eval.allow_code_execution": "confirm run unsafe code; unsafe code; allow code; code execution; hf allow code eval",
    "save": "output; output dir; output path; save dir; save path; checkpoint dir; checkpoint path; root dir; run "
    "dir; default root dir; out dir; checkpoint folder; save folder; save to; log dir",
    "save.every": "save steps; save strategy; saves per epoch; checkpoint every; checkpoint steps; save every; "
    "checkpointing steps; save every n steps; save per epoch",
    "save.keep": "save total limit; total limit; keep last; num checkpoints; max checkpoints; checkpoints keep; "
    "limit; keep last n checkpoints; checkpoints total limit; num checkpoints to keep; save limit; save top k; save "
    "max",
    "save.hub": "push to hub; upload hub; upload; hub",
    "save.hub.name": "push; push to; repo; repo id; repository; repository id; hub model id; hub id; hub repo; push "
    "to hub model id; hub model; hub repository",
    "save.hub.private": "hub private; private repo; hub private repo",
    "save.hub.revision": "hub revision; hub model revision; hub branch; push to hub revision",
    "save.hub.strategy": "hub strategy; push strategy",
    "save.full_state=!": "save only model; weights only; only model; save weights only; model only; save model only",
    "save.full_state": "save optimizer state; save state; save optimizer; full checkpoint",
    "save.resume": "resume from checkpoint; auto resume; auto resume from checkpoints; resume; continue; resume "
    "training; load checkpoint; restart",
    "track": "report to; report; logger; logging; tracker; log with; metric logger; loggers; trackers; log to; "
    "logging backend; logging tool; experiment tracker",
    "track=wandb": "use wandb; wandb; enable wandb; weights and biases; wandb logger; create wandb logger; "
    "wandb tracking",
    "track=tensorboard": "use tensorboard; enable tensorboard; tensorboard logger; create tensorboard logger; "
    "tensorboard "
    "tracking",
    "track=trackio": "use trackio",
    "track.name": "run name; wandb name; experiment name; run id; wandb run name; wandb run id; job name; run title",
    "track.project": "wandb project; project name; tracker project name; logging project; experiment project",
    "track.every": "logging steps; log steps; log every; logging strategy; log every n steps; print every; report "
    "every; track steps",
    "launch": "launcher; scheduler slurm; cluster; submit; job",
    "launch.nccl_timeout": "ddp timeout; timeout; distributed timeout; nccl timeout; process group timeout; "
    "distributed timeout minutes; collective timeout; dist timeout",
    "launch.partition": "slurm partition; queue; slurm queue; qos",
    "launch.account": "slurm account; project account",
    "launch.time": "exit duration; exit duration in mins; exit duration in minutes; time limit in minutes; time "
    "limit; walltime; wall time; max time; slurm time; job time",
    "launch.image": "container; docker; docker image; container image; sif; image id; image name",
    "launch.volume": "pvc; claim; claim name; persistent volume claim; volume claim; volumes; bucket; shared folder; "
    "file mounts; storage",
    "launch.secret": "secret name; secret ref; env from; secrets; kubernetes secret",
    "launch.requeue": "auto requeue; auto restart; restart policy; job recovery; recover",
    "launch.retries": "max restarts; max retries; num retries; restarts; retry; attempts",
    "launch.rendezvous": "rdzv backend; rendezvous backend; rdzv",
    "launch.launcher": "torchrun; launch command; launch with; start with",
    "seed": "random seed; manual seed; rng seed; train seed; global seed; random state",
    "target": "stack; trl version; framework; backend; version",
    "method.vllm.tensor_parallel": "vllm tensor parallel size; rollout tensor model parallel size; rollout tensor "
    "parallel size; vllm tp; rollout tp; vllm tensor model parallel size; generation tensor parallel size",
    "strategy.offload=optimizer": "adam offload; optimizer offload; offload optimizer states; offload adam; optimizer "
    "cpu offload",
    "strategy.offload=cpu": "param offload; parameter offload; params offload; fsdp param offload",
    "optimizer=galore_adamw": "use galore",
    "optimizer=apollo_adamw": "use apollo",
    "extends": "include; base; inherit; defaults; import",
}
"""What is meant, by what is said. A value behind the path is what the name itself decides; `!` is the opposite of what
was typed."""
