"""What LLaMA-Factory's own data/dataset_info.json says of the sets that it brings or names on the hub.

Source: LLaMA-Factory, data/dataset_info.json. Sets that lie on ModelScope alone are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

About = Mapping[str, object]

ROLES = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
ANSWERS = {"chosen": "chosen", "rejected": "rejected"}


def _columns(repo: str, prompt: str, response: str, **more: object) -> About:
    return {"hf_hub_url": repo, "columns": {"prompt": prompt, "response": response}, **more}


def _talks(place: About, column: str = "conversations", *others: str, roles: bool = False) -> About:
    """Rows of messages, with further columns of the same name."""
    made = {"formatting": "sharegpt", "columns": {"messages": column, **{one: one for one in others}}}
    return {**place, **made, **({"tags": ROLES} if roles else {})}


def _hub(repo: str, **more: object) -> About:
    return {"hf_hub_url": repo, **more}


def _file(name: str) -> About:
    return {"file_name": name}


ALPACA = {
    "alpaca_en": "llamafactory/alpaca_en", "alpaca_zh": "llamafactory/alpaca_zh",
    "alpaca_gpt4_en": "llamafactory/alpaca_gpt4_en", "alpaca_gpt4_zh": "llamafactory/alpaca_gpt4_zh",
    "guanaco": "JosephusCheung/GuanacoDataset", "belle_2m": "BelleGroup/train_2M_CN",
    "belle_1m": "BelleGroup/train_1M_CN", "belle_0.5m": "BelleGroup/train_0.5M_CN",
    "belle_dialog": "BelleGroup/generated_chat_0.4M", "belle_math": "BelleGroup/school_math_0.25M",
    "open_platypus": "garage-bAInd/Open-Platypus", "codealpaca": "sahil2801/CodeAlpaca-20k",
    "alpaca_cot": "QingyiSi/Alpaca-CoT", "webnovel": "zxbsmk/webnovel_cn", "nectar_sft": "AstraMindAI/SFT-Nectar",
    "stem_zh": "hfl/stem_zh_instruction", "ruozhiba_gpt4": "hfl/ruozhiba_gpt4_turbo",
    "chinese_r1_distill": "Congliu/Chinese-DeepSeek-R1-Distill-data-110k-SFT", "oasst_de": "mayflowergmbh/oasst_de",
    "dolly_15k_de": "mayflowergmbh/dolly-15k_de", "alpaca-gpt4_de": "mayflowergmbh/alpaca-gpt4_de",
    "openschnabeltier_de": "mayflowergmbh/openschnabeltier_de", "evol_instruct_de": "mayflowergmbh/evol-instruct_de",
    "dolphin_de": "mayflowergmbh/dolphin_de", "booksum_de": "mayflowergmbh/booksum_de",
    "airoboros_de": "mayflowergmbh/airoboros-3.0_de", "ultrachat_de": "mayflowergmbh/ultra-chat_de",
}  # fmt: skip
CONVERSATIONS = {
    "lima": "llamafactory/lima", "slimorca": "Open-Orca/SlimOrca",
    "sharegpt_hyper": "totally-not-an-llm/sharegpt-hyperfiltered-3k", "sharegpt4": "shibing624/sharegpt_gpt4",
    "infinity_instruct": "BAAI/Infinity-Instruct", "agent_instruct": "THUDM/AgentInstruct",
    "evol_instruct": "WizardLM/WizardLM_evol_instruct_V2_196k", "neo_sft": "m-a-p/neo_sft_phase2",
    "magpie_pro_300k": "Magpie-Align/Magpie-Pro-300K-Filtered",
}  # fmt: skip
PAIRS = {
    "dpo_en_demo": _file("dpo_en_demo.json"), "dpo_zh_demo": _file("dpo_zh_demo.json"),
    "dpo_mix_en": _hub("llamafactory/DPO-En-Zh-20k", subset="en"),
    "dpo_mix_zh": _hub("llamafactory/DPO-En-Zh-20k", subset="zh"), "coig_p": _hub("m-a-p/COIG-P"),
}  # fmt: skip
OWN: Mapping[str, About] = {
    **{name: _file(f"{name}.json") for name in ("identity", "alpaca_en_demo", "alpaca_zh_demo")},
    **{name: _hub(repo) for name, repo in ALPACA.items()},
    **{name: {**_hub(repo), "formatting": "sharegpt"} for name, repo in CONVERSATIONS.items()},
    **{name: {**_talks(place, "conversations", *ANSWERS), "ranking": True} for name, place in PAIRS.items()},
    **{name: _talks(_file(f"{name}.json"), "conversations", "tools")
       for name in ("glaive_toolcall_en_demo", "glaive_toolcall_zh_demo")},
    **{name: _talks(_hub(f"llamafactory/{name}"), "conversations", "tools")
       for name in ("glaive_toolcall_en", "glaive_toolcall_zh")},
    "glaive_toolcall_100k": _talks(_hub("hiyouga/glaive-function-calling-v2-sharegpt"), "conversations", "tools"),
    "mllm_demo": _talks(_file("mllm_demo.json"), "messages", "images", roles=True),
    "mllm_audio_demo": _talks(_file("mllm_audio_demo.json"), "messages", "audios", roles=True),
    "mllm_video_demo": _talks(_file("mllm_video_demo.json"), "messages", "videos", roles=True),
    "mllm_video_audio_demo": _talks(_file("mllm_video_audio_demo.json"), "messages", "videos", "audios", roles=True),
    "mllm_pt_demo": _talks(_hub("BUAADreamer/mllm_pt_demo"), "messages", "images", roles=True),
    **{f"llava_1k_{one}": _talks(_hub("BUAADreamer/llava-en-zh-2k", subset=one), "messages", "images", roles=True)
       for one in ("en", "zh")},
    **{f"llava_150k_{one}": _talks(_hub("BUAADreamer/llava-en-zh-300k", subset=one), "messages", "images", roles=True)
       for one in ("en", "zh")},
    "pokemon_cap": _talks(_hub("llamafactory/pokemon-gpt4o-captions"), "conversations", "images"),
    "rlhf_v": {**_talks(_hub("llamafactory/RLHF-V"), "conversations", *ANSWERS, "images"), "ranking": True},
    "vlfeedback": {**_talks(_hub("Zhihui/VLFeedback"), "conversations", *ANSWERS, "images"), "ranking": True},
    "rlaif_v": _hub("openbmb/RLAIF-V-Dataset", ranking=True,
                    columns={"prompt": "question", **ANSWERS, "images": "image"}),
    "openorca": _hub("Open-Orca/OpenOrca",
                     columns={"prompt": "question", "response": "response", "system": "system_prompt"}),
    "mathinstruct": _columns("TIGER-Lab/MathInstruct", "instruction", "output"),
    "firefly": _columns("YeungNLP/firefly-train-1.1M", "input", "target"),
    "webqa": _columns("suolyer/webqa", "input", "output"),
    "adgen_train": _columns("HasturOfficial/adgen", "content", "summary", split="train"),
    "adgen_eval": _columns("HasturOfficial/adgen", "content", "summary", split="validation"),
    "cosmopedia": _columns("HuggingFaceTB/cosmopedia", "prompt", "text"),
    "magpie_ultra": _columns("argilla/magpie-ultra-v0.1", "instruction", "response"),
    "web_instruct": _columns("TIGER-Lab/WebInstructSub", "question", "answer"),
    "openo1_sft": _columns("llamafactory/OpenO1-SFT", "prompt", "response"),
    "dlr_web": _columns("Attention1115/DLR-Web", "question", "response", split="full"),
    "ultrachat_200k": _talks(_hub("HuggingFaceH4/ultrachat_200k", split="train_sft"), "messages", roles=True),
    "lmsys_chat": _talks(_hub("lmsys/lmsys-chat-1m"), "conversation", roles=True),
    **{name: {**_talks(_hub(f"llamafactory/{repo}"), "messages"), "tags": {**ROLES, "system_tag": "system"}}
       for name, repo in (("open_thoughts", "OpenThoughts-114k"), ("open_r1_math", "OpenR1-Math-94k"))},
    "ultrafeedback": _hub("llamafactory/ultrafeedback_binarized", ranking=True,
                          columns={"prompt": "instruction", **ANSWERS}),
    "orca_pairs": _hub("Intel/orca_dpo_pairs", ranking=True,
                       columns={"prompt": "question", **ANSWERS, "system": "system"}),
    "kto_en_demo": {**_talks(_file("kto_en_demo.json"), roles=True),
                    "columns": {"messages": "messages", "kto_tag": "label"}},
    "kto_mix_en": {**_talks(_hub("argilla/kto-mix-15k"), roles=True),
                   "columns": {"messages": "completion", "kto_tag": "label"}},
    "ultrafeedback_kto": _hub("argilla/ultrafeedback-binarized-preferences-cleaned-kto",
                              columns={"prompt": "prompt", "response": "completion", "kto_tag": "label"}),
    "c4_demo": {"file_name": "c4_demo.jsonl", "columns": {"prompt": "text"}},
    "wiki_demo": {"file_name": "wiki_demo.txt", "columns": {"prompt": "text"}},
    "refinedweb": _hub("tiiuae/falcon-refinedweb", columns={"prompt": "content"}),
    "redpajama_v2": _hub("togethercomputer/RedPajama-Data-V2", subset="default", columns={"prompt": "raw_content"}),
    "wikipedia_en": _hub("olm/olm-wikipedia-20221220", columns={"prompt": "text"}),
}  # fmt: skip
