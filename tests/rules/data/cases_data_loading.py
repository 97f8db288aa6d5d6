"""Cases of the loader, of what a loss is computed on, and of logging (XP55x to XP60x, XP75x)."""

from __future__ import annotations

from case_support import ROW, Case, spec, trained
from cases_data import ASKED, CLOSED, LONG, OPEN_ENDED, PROMPTED, TALKS, UNANSWERED, extra, on

LOADER = (
    Case(
        "XP561",
        spec(extra("dataloader_prefetch_factor = 2")),
        spec(extra("dataloader_prefetch_factor = 2", "dataloader_num_workers = 4")),
    ),
    Case(
        "XP561",
        spec(extra("dataloader_persistent_workers = true")),
        spec(extra("dataloader_persistent_workers = true", "dataloader_num_workers = 4")),
        variant="persistent",
    ),
    Case(
        "XP561",
        spec(extra("dataloader_multiprocessing_context = fork")),
        spec(extra("dataloader_multiprocessing_context = fork", "dataloader_num_workers = 4")),
        variant="context",
    ),
    Case(
        "XP562",
        spec(extra("dataloader_num_workers = 4", "dataloader_prefetch_factor = 0")),
        spec(extra("dataloader_num_workers = 4", "dataloader_prefetch_factor = 1")),
    ),
    Case(
        "XP563",
        spec("data(shuffle=false)", extra("train_sampling_strategy = group_by_length")),
        spec(extra("train_sampling_strategy = group_by_length")),
    ),
    Case(
        "XP104",
        spec(extra("train_sampling_strategy = sequental")),
        spec(extra("train_sampling_strategy = sequential")),
        variant="sampling",
    ),
    Case("XP564", spec(extra('length_column_name = "tokens"')), spec(extra('length_column_name = "length"'))),
    Case(
        "XP565",
        on("oasst-guanaco", extra('dataset_text_field = "prompt"')),
        on("oasst-guanaco", extra('dataset_text_field = "story"')),
    ),
    Case(
        "XP565",
        on("oasst-guanaco", "target trl-0.18", extra('dataset_text_field = "story"')),
        on("oasst-guanaco", "target trl-0.18", extra('dataset_text_field = "text"')),
        variant="no-end",
    ),
    Case(
        "XP104",
        spec(extra('dataset_kwargs = "{\\"skip_prepare_dataset\\": true}"')),
        spec(),
        variant="dataset-kwargs",
    ),
    Case(
        "XP104",
        spec(extra('dataset_kwargs = "{\\"add_special_tokens\\": false}"')),
        spec(),
        variant="dataset-keys",
    ),
    Case(
        "XP104",
        spec(extra('accelerator_config = "{\\"non_blocking\\": true}"')),
        spec(),
        variant="accelerator-config",
    ),
)

LOSSES = (
    Case("XP504", spec("method sft(completion_only)"), on("alpaca", "method sft(completion_only)")),
    Case(
        "XP504",
        on("alpaca", "method sft(assistant_only)"),
        on('"talks.jsonl"', "method sft(assistant_only)"),
        {"talks.jsonl": TALKS},
        variant="plain",
    ),
    Case(
        "XP506",
        spec('model(chat_template=file("plain.jinja"))', "method sft(assistant_only)"),
        spec('model(chat_template=file("marked.jinja"))', "method sft(assistant_only)"),
        {"plain.jinja": PROMPTED, "marked.jinja": CLOSED},
    ),
    Case(
        "XP506",
        spec("method sft(assistant_only)", train=trained("llama-3.1-8b-instruct on infinity-instruct")),
        spec("method sft(assistant_only)", train=trained("llama-3-8b-instruct on infinity-instruct")),
        variant="own",
    ),
    Case(
        "XP601",
        spec("method sft(assistant_only)", "target trl-0.18"),
        spec("method sft(assistant_only)", "target trl-1.16"),
    ),
    Case(
        "XP601",
        on("alpaca", "method sft(completion_only)", "memory(liger)", "target trl-0.18"),
        on("alpaca", "method sft(completion_only)", "target trl-0.18"),
        variant="lost-mask",
    ),
    Case(
        "XP602",
        on('"rows.jsonl"', "method sft(assistant_only)"),
        on('"good.jsonl"', "method sft(assistant_only)"),
        {"rows.jsonl": ROW + UNANSWERED, "good.jsonl": ROW},
    ),
    Case(
        "XP603",
        spec(train=trained('qwen2.5-3b on "long.jsonl"'), batch="gbs=128 micro=16 seq=512"),
        spec(train=trained('qwen2.5-3b on "long.jsonl"'), batch="gbs=128 micro=16 seq=2048"),
        {"long.jsonl": LONG + ASKED},
    ),
    Case(
        "XP603",
        spec(train=trained('qwen2.5-3b on "long.jsonl"'), batch="gbs=128 micro=16 seq=512"),
        spec(train=trained('qwen2.5-3b on "long.jsonl"'), batch="gbs=128 micro=16 seq=2048"),
        {"long.jsonl": LONG},
        variant="every",
    ),
    Case(
        "XP604",
        spec('model(chat_template=file("open.jinja"))', "method sft(assistant_only)"),
        spec('model(chat_template=file("closed.jinja"))', "method sft(assistant_only)"),
        {"open.jinja": OPEN_ENDED, "closed.jinja": CLOSED},
    ),
    Case("XP605", spec(batch="gbs=128 micro=16 seq=1"), spec(batch="gbs=128 micro=16 seq=2")),
    Case(
        "XP606",
        spec(extra("router_aux_loss_coef = 0.01")),
        spec(
            extra("router_aux_loss_coef = 0.01"), train=trained("qwen3-30b-a3b on infinity-instruct"), strategy="zero3"
        ),
    ),
    Case("XP607", spec(extra("truncation_mode = keep_end")), spec(extra("truncation_mode = keep_start"))),
    Case(
        "XP608",
        spec("method sft(loss=dft)", extra("label_smoothing_factor = 0.1")),
        spec("method sft(loss=dft)"),
    ),
    Case("XP608", spec(extra("label_smoothing_factor = 0.1")), spec(), variant="twice"),
)

LOGGING = (
    Case("XP106", spec("method sft(loss=dftt)"), spec("method sft(loss=dft)"), variant="sft-loss"),
    Case("XP106", spec("track wanbd"), spec("track wandb"), variant="tracker"),
    Case("XP107", spec("track wandb(every=0)"), spec("track wandb(every=1)"), variant="logging"),
    Case("XP121", spec(extra('logging_dir = "logs"')), spec(), variant="logging-dir"),
    Case(
        "XP106", spec("save(hub(strategy=each_save))"), spec("save(hub(strategy=every_save))"), variant="hub-strategy"
    ),
    Case("XP107", spec('save(hub="my model")'), spec('save(hub="my-model")'), variant="repository"),
    Case("XP107", spec('save(hub="us/them/model")'), spec("save(hub=them/model)"), variant="repository-of-three"),
    Case("XP120", spec(extra('hub_model_id = "me/model"')), spec("save(hub=me/model)"), variant="hub-model-id"),
    Case("XP750", spec(extra("hub_always_push = true")), spec(extra("hub_always_push = true"), "save(hub)")),
    Case("XP755", spec(save='save "out/my run" hub'), spec(save='save "out/my run" hub="my-run"')),
    Case("XP756", spec("save(hub)"), spec("save(hub=run)")),
    Case("XP757", spec("save(hub=run)"), spec("save(hub(name=run, private=false))")),
    Case("XP758", spec("save(every=never, hub(strategy=checkpoint))"), spec("save(every=never, hub(strategy=end))")),
    Case(
        "XP758",
        spec("save(every=never, hub(checkpoint_branches))"),
        spec("save(every=epoch, hub(checkpoint_branches))"),
        variant="branches",
    ),
    Case(
        "XP759",
        spec("strategy(state_dict=sharded)", "save(hub(checkpoint_branches))", strategy="fsdp"),
        spec("strategy(state_dict=full)", "save(hub(checkpoint_branches))", strategy="fsdp"),
    ),
    Case(
        "XP751",
        spec('track trackio(project="mine")', "target trl-0.18"),
        spec('track trackio(project="mine")'),
    ),
    Case("XP752", spec("track trackio"), spec('track trackio(project="mine")')),
    Case("XP753", spec(extra("logging_nan_inf_filter = true")), spec(extra("logging_nan_inf_filter = false"))),
    Case("XP754", spec('track none(name="mine")'), spec('track wandb(name="mine")')),
)

CASES: tuple[Case, ...] = (*LOADER, *LOSSES, *LOGGING)
