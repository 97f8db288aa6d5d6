"""The features of this run, in the order in which they are called, and the class of its trainer."""

from .core.fault_tolerance import FaultTolerant
from .core.feature import Feature
from .features.distributed.all_reduce import AllReduce
from .features.distributed.cpu_processes import CpuProcesses
from .features.distributed.deepspeed import DeepSpeed
from .features.distributed.fsdp import Fsdp
from .features.distributed.node_all_reduce import NodeAllReduce
from .features.distributed.node_network import NodeNetwork
from .features.distributed.node_rendezvous import NodeRendezvous
from .features.distributed.peer_to_peer import PeerToPeer
from .features.distributed.single_process import SingleProcess
from .features.evaluation.during_training import EvaluatingTrainer, Evaluation
from .features.evaluation.early_stopping import EarlyStopping
from .features.launch.local_files import LocalFiles
from .features.launch.model_files import ModelFiles
from .features.launch.packages import Packages
from .features.launch.renamed_files import RenamedFiles
from .features.launch.tokenizer_files import TokenizerFiles
from .features.launch.trackers import Trackers
from .features.messages.unread_columns import UnreadColumns
from .features.method.answer_ends import AnswerEnds
from .features.method.assistant_masks import AssistantMasks
from .features.method.checkpointing_warning import CheckpointingWarning
from .features.method.generation_prompt import GenerationPrompt
from .features.method.image_pairs import ImagePairs
from .features.method.kto import KtoRows
from .features.method.log_completions import CompletionsTrainer
from .features.method.loss_division import LossDivision
from .features.method.on_policy import OnPolicy, OnPolicyTrainer
from .features.method.reference import Reference
from .features.method.reward_progress import RewardProgress
from .features.method.rewards import Rewards
from .features.method.sampling import Sampling
from .features.method.teacher import Teacher
from .features.method.tokens import TokenRows
from .features.method.tools import Tools
from .features.model.adapter_init import AdapterInit, AdapterInitTrainer
from .features.model.adapters import Adapters, AdapterTrainer
from .features.model.added_tokens import AddedTokens
from .features.model.chat_template import ChatTemplate
from .features.model.compiled_layers import CompiledLayers
from .features.model.continued_adapter import ContinuedAdapter
from .features.model.float8 import Float8
from .features.model.frozen_weights import FrozenWeights
from .features.model.liger_family import LigerFamily
from .features.model.merged_adapters import MergedAdapters
from .features.model.newer_config import NewerConfig
from .features.model.reward_head import RewardHead
from .features.model.rope import Rope
from .features.model.special_tokens import SpecialTokens
from .features.model.tied_weights import TiedWeights
from .features.model.vision import Processor, Vision
from .features.model.weight_dtypes import WeightDtypes
from .features.optimizer.decay_share import DecayShareTrainer
from .features.optimizer.empty_groups import NonemptyGroupsTrainer
from .features.optimizer.idle import Idle
from .features.optimizer.muon import Muon, MuonTrainer
from .features.optimizer.nan_loss import NanLossTrainer
from .features.optimizer.projected_gradients import ProjectedGradients
from .features.optimizer.schedule_free import ScheduleFreeTrainer
from .features.rows.chat import ChatRows
from .features.rows.chunks import ChunkedTrainer, Chunks
from .features.rows.images import Images
from .features.rows.lengths import LengthLimits
from .features.rows.local_sources import LocalSources
from .features.rows.loss_mask import LossMask
from .features.rows.message_fields import MessageFields
from .features.rows.mixed_shapes import MixedShapes, MixedShapesTrainer
from .features.rows.mixture import Mixture
from .features.rows.named_roles import NamedRoles
from .features.rows.orpo_counts import OrpoCounts
from .features.rows.packing import Packing
from .features.rows.pair_counts import PairCounts
from .features.rows.prompt_template import PromptTemplate
from .features.rows.prompts import PromptRows
from .features.rows.shares import Shares
from .features.saving.hub import Hub, PublishingTrainer
from .features.saving.rotation import RotatingTrainer
from .features.saving.transformers_checkpoints import TransformersCheckpoints
from .features.saving.weights_only import WeightsOnly, WeightsOnlyTrainer
from .features.streaming.reading import FirstRows, Streaming
from .library_internals.deepspeed_engine import DeepSpeedEngine
from .library_internals.deepspeed_shards import DeepSpeedShards
from .library_internals.epoch_order import EpochOrder
from .library_internals.hub_kernels import HubKernels
from .library_internals.liger_kernels import Liger
from .library_internals.random_states import RandomStatesTrainer
from .library_internals.renamed_weights import RenamedWeightsTrainer
from .library_internals.repeated_prompts import RepeatedPromptsTrainer
from .library_internals.rollout_rounds import RolloutRoundsTrainer
from .library_internals.synced_reference import SyncedReferenceTrainer
from .library_internals.template_time import TemplateTime
from .library_internals.torch_exit_barrier import TorchExitBarrier
from .library_internals.trl_tool_calls import ToolCallingTrainer
from .library_internals.ulysses import Ulysses

FEATURES: tuple[Feature, ...] = (
    Evaluation(),
    DeepSpeed(),
    DeepSpeedEngine(),
    CpuProcesses(),
    SingleProcess(),
    NodeNetwork(),
    PeerToPeer(),
    AllReduce(),
    NodeAllReduce(),
    NodeRendezvous(),
    TorchExitBarrier(),
    Fsdp(),
    TransformersCheckpoints(),
    WeightsOnly(),
    Processor(),
    ChatTemplate(),
    TemplateTime(),
    CompiledLayers(),
    Float8(),
    AssistantMasks(),
    FrozenWeights(),
    GenerationPrompt(),
    Rewards(),
    Tools(),
    Sampling(),
    Teacher(),
    OnPolicy(),
    EarlyStopping(),
    Reference(),
    AnswerEnds(),
    LossDivision(),
    WeightDtypes(),
    DeepSpeedShards(),
    AddedTokens(),
    SpecialTokens(),
    LigerFamily(),
    Liger(),
    CheckpointingWarning(),
    FirstRows(),
    LocalFiles(),
    ModelFiles(),
    RenamedFiles(),
    TokenizerFiles(),
    LocalSources(),
    UnreadColumns(),
    MessageFields(),
    Images(),
    ImagePairs(),
    PromptRows(),
    ChatRows(),
    PromptTemplate(),
    NamedRoles(),
    TokenRows(),
    Mixture(),
    Shares(),
    Streaming(),
    KtoRows(),
    LengthLimits(),
    PairCounts(),
    OrpoCounts(),
    MixedShapes(),
    Chunks(),
    Packing(),
    LossMask(),
    RewardHead(),
    NewerConfig(),
    Rope(),
    HubKernels(),
    ProjectedGradients(),
    Muon(),
    Hub(),
    ContinuedAdapter(),
    Adapters(),
    AdapterInit(),
    MergedAdapters(),
    Vision(),
    Packages(),
    Trackers(),
    EpochOrder(),
    Ulysses(),
    TiedWeights(),
    RewardProgress(),
    Idle(),
)


def trainer_class() -> type[FaultTolerant]:
    """trl's trainer with the additions of this run. If several base classes define a method, Python calls the first."""
    from trl import SFTTrainer

    from .features.evaluation.named_log import NamedLog

    class Trainer(
        MixedShapesTrainer,
        ChunkedTrainer,
        AdapterTrainer,
        AdapterInitTrainer,
        PublishingTrainer,
        RotatingTrainer,
        EvaluatingTrainer,
        NonemptyGroupsTrainer,
        MuonTrainer,
        DecayShareTrainer,
        ScheduleFreeTrainer,
        RandomStatesTrainer,
        RenamedWeightsTrainer,
        WeightsOnlyTrainer,
        NanLossTrainer,
        CompletionsTrainer,
        FaultTolerant,
        OnPolicyTrainer,
        ToolCallingTrainer,
        RepeatedPromptsTrainer,
        RolloutRoundsTrainer,
        SyncedReferenceTrainer,
        SFTTrainer,  # type: ignore[misc]  # trl has no types
        NamedLog,
    ):
        """The trainer of this run."""

    return Trainer
