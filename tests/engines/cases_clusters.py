"""Cases of Kubernetes, SkyPilot, Ray and what every cluster asks (XP86x, XP87x, XP89x)."""

from __future__ import annotations

from case_support import ROW, Case, spec

IMAGE = "ghcr.io/me/train:1"
GRPO = "method grpo(generations=8, rewards=[accuracy], {vllm})"
PROMPTS = "qwen2.5-3b on deepmath-103k for 100 steps"


def k8s(more: str = "", image: str = IMAGE, volume: str = "claim") -> str:
    """The clause; `more` begins with a comma."""
    return f'launch k8s(image="{image}", volume={volume}{more})'


def sky(more: str = "volume=shared") -> str:
    return f"launch sky({more})"


def ray(more: str = 'volume="/mnt/shared"') -> str:
    return f"launch ray({more})"


def grpo(vllm: str, launch: str) -> str:
    return spec(GRPO.format(vllm=vllm), launch, train=PROMPTS)


def nodes(count: int, launch: str, hardware: str = "8 x h100-80gb") -> str:
    return spec(f"nodes {count}", launch, hardware=hardware, batch="gbs=128 micro=4")


CASES: tuple[Case, ...] = (
    Case("XP860", spec("launch k8s(volume=claim)"), spec(k8s())),
    Case("XP861", spec(k8s(image="ghcr.io/Me/train:1")), spec(k8s())),
    Case("XP861", spec(k8s(image=f"docker:{IMAGE}")), spec(k8s()), variant="docker"),
    Case("XP861", spec(k8s(image=f"https://{IMAGE}")), spec(k8s(image=f"{IMAGE}@sha256:{0:064}")), variant="address"),
    Case("XP862", spec(k8s(volume='"My_Claim"')), spec(k8s(volume='"my-claim"'))),
    Case("XP862", spec(k8s(', secret="a b"')), spec(k8s(', secret="a.b"')), variant="secret"),
    Case("XP870", spec(sky(), hardware="8 x h20"), spec(sky(), hardware="8 x h200")),
    Case("XP871", grpo("vllm(mode=server)", sky()), grpo("vllm(mode=colocate)", sky())),
    Case("XP872", nodes(2, sky('volume="s3://mine"')), nodes(1, sky('volume="s3://mine"'))),
    Case("XP873", spec(sky(f'volume=shared, image="docker:{IMAGE}"')), spec(sky(f'volume=shared, image="{IMAGE}"'))),
    Case("XP874", spec(sky('volume="My Volume"')), spec(sky("volume=my-volume"))),
    Case("XP874", spec(sky('volume="s3://My_Bucket/x"')), spec(sky('volume="s3://my-bucket/x"')), variant="bucket"),
    Case("XP894", spec(ray('volume="shared"')), spec(ray())),
    Case("XP894", spec(ray('volume="s3://mine/runs"')), spec(ray('volume="/mnt/mine/runs"')), variant="bucket"),
    Case("XP894", spec(ray('volume="~/../runs//a"')), spec(ray('volume="/mnt/runs/a"')), variant="home"),
    Case("XP895", grpo("vllm(mode=server)", ray()), grpo("vllm(mode=colocate)", ray())),
    Case("XP862", spec(k8s(', pull_secret="a b"')), spec(k8s(', pull_secret=registry')), variant="registry"),
    Case("XP910", spec('launch local(env=["NCCL_DEBUG"])'), spec('launch local(env=["NCCL_DEBUG=INFO"])')),
    Case("XP910", spec('launch local(env=["MASTER_ADDR=me"])'), spec('launch local(env=["NCCL_IB_HCA=mlx5"])'),
         variant="ours"),
    Case("XP910", spec('launch local(env=["A=1", "A=2"])'), spec('launch local(env=["A=1", "B=2"])'), variant="twice"),
    Case("XP911", spec('launch local(env=["HF_TOKEN=abc"])'), spec('launch local(env=["HF_HOME=/scratch"])')),
    Case("XP911", spec('launch slurm(extra_args=["--api-key=abc"])'), spec('launch slurm(extra_args=["--nice=10"])'),
         variant="option"),
    Case("XP912", spec(k8s(', tolerations=["gpu:Never"]')), spec(k8s(', tolerations=["gpu=yes:NoSchedule", "spot"]'))),
    Case("XP912", spec(k8s(', node_selector=["a100"]')), spec(k8s(', node_selector=["pool=a100"]')), variant="labels"),
    Case("XP912", spec(f'launch slurm(image="{IMAGE}", container=pyxis, mounts=["data:/data"])'),
         spec(f'launch slurm(image="{IMAGE}", container=pyxis, mounts=["/data:/data:ro"])'), variant="mounts"),
    Case("XP913", spec(sky('volume=shared, extra_args=["--num-nodes=2"]')),
         spec(sky('volume=shared, extra_args=["--use-spot", "--infra=aws/us-east-1"]'))),
    Case("XP913", spec(ray('volume="/mnt/shared", extra_args=["; rm"]')),
         spec(ray('volume="/mnt/shared", extra_args=["--address=http://head:8265"]')), variant="ray"),
    Case("XP890", spec("launch local(time=2h)"), spec("launch local(requeue=false)")),
    Case("XP890", spec(k8s(", exclusive")), spec(k8s(", time=2h")), variant="slurm"),
    Case("XP890", spec(sky("volume=shared, secret=mine")), spec(k8s(", secret=mine")), variant="k8s"),
    Case(
        "XP891",
        spec(k8s(", requeue"), save='save "out/run" every=never'),
        spec(k8s(), save='save "out/run" every=never'),
    ),
    Case(
        "XP891",
        spec(sky("volume=shared, requeue"), save='save "out/run" resume=never'),
        spec(sky("volume=shared, requeue"), save='save "out/run" every=100'),
        variant="never-resumed",
    ),
    Case(
        "XP891",
        spec("launch local(retries=2)", save='save "out/run" every=never'),
        spec("launch local(retries=2)", save='save "out/run" every=epoch'),
        variant="retries",
    ),
    Case("XP890", spec(ray('volume="/mnt/shared", image="img"')), spec(sky("volume=shared, image=img")), variant="ray"),
    Case("XP892", nodes(2, "launch ray"), nodes(2, ray()), variant="ray"),
    Case("XP892", nodes(2, f'launch k8s(image="{IMAGE}")'), nodes(2, k8s())),
    Case("XP892", spec("launch sky"), spec("launch sky", save='save "out/run" hub(name="me/run", private)'),
         variant="one-node"),
    Case(
        "XP892",
        spec("launch sky", train='qwen2.5-3b on "far" for 3 epochs'),
        spec(sky(), train='qwen2.5-3b on "far" for 3 epochs'),
        {"far/rows.jsonl": ROW},
        "data",
    ),
)  # fmt: skip
