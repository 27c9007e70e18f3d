"""The table that says how the policy is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from prime_cli.core.config_file import StrictModel

WeightTransfer = Literal["filesystem", "adapter", "nccl"]


class InferenceConfig(StrictModel):
    """The inference servers. `auto` takes vLLM where it and a GPU are present, else the embedded engine.

    With `servers` above 1 that many engines serve the policy behind one gateway; turns of one conversation go to one of
    them. New weights travel as `weight_transfer` says: `filesystem` writes them whole and the servers reload them from
    there, `adapter` hands over the trained adapter alone (needs `trainer.lora`), `nccl` sends them from GPU to GPU
    (vLLM only). A server that does not answer a request for one token within `liveness_timeout_s`, and nothing else
    either, ends the run with its name.

    vLLM may live in an interpreter of its own, `vllm_python`; `vllm_args` go to its command line, an underscore or a
    dash between words, `true` for a bare flag.
    """

    engine: Literal["auto", "embedded", "vllm"] = "auto"
    servers: int = Field(default=1, ge=1, le=64)
    num_slots: int = Field(default=256, ge=1, description="requests that one server runs at once; more wait")
    weight_transfer: WeightTransfer = "filesystem"
    gpu_memory_utilization: float = Field(default=0.5, gt=0, le=1, description="vLLM's share; the rest trains")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="of vLLM's weights: bfloat16 on a GPU, float32 without"
    )
    vllm_python: Path | None = Field(
        default=None,
        description="default: the variable PRIME_VLLM_PYTHON, else that of `lab setup --prime-rl`, else prime's own",
    )
    tool_call_parser: str = Field(
        default="hermes", description="vLLM's name for the form of the model's tool calls; empty: it takes no tools"
    )
    vllm_args: dict[str, Any] = Field(default_factory=dict)
    startup_timeout_s: float = Field(default=300, gt=0)
    liveness_timeout_s: float = Field(default=30, gt=0)

    @field_validator("vllm_args")
    @classmethod
    def _only_what_is_not_decided_elsewhere(cls, values: dict[str, Any]) -> dict[str, Any]:
        owned = {
            "model", "served-model-name", "host", "port", "logprobs-mode", "enable-lora", "enable-scale-out",
            "weight-transfer-config", "api-key", "enable-auto-tool-choice",
        }  # fmt: skip
        given = {name.replace("_", "-") for name in values}
        if "tool-call-parser" in given:
            raise ValueError("tool-call-parser: set `inference.tool_call_parser`")
        taken = sorted(owned & given)
        if taken:
            raise ValueError(f"{', '.join(taken)}: the run decides this itself")
        return values

    @model_validator(mode="after")
    def _engine_can_take_the_weights_so(self) -> InferenceConfig:
        if self.weight_transfer == "nccl" and self.engine == "embedded":
            raise ValueError("weight_transfer `nccl` is vLLM's; the embedded engine takes `filesystem` or `adapter`")
        return self

    @property
    def gpu_workers(self) -> int:
        """GPU processes of all vLLM servers together."""
        sizes = {name.replace("_", "-"): value for name, value in self.vllm_args.items()}
        each = int(sizes.get("tensor-parallel-size", 1)) * int(sizes.get("pipeline-parallel-size", 1))
        return self.servers * each
