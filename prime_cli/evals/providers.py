"""Names of services that answer in the OpenAI dialect: `-p NAME` in place of an address and a key's variable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Provider:
    """Where a service answers, and which environment variable holds its key. Without a `url` it is that of the hub."""

    url: str | None
    api_key_var: str


PROVIDERS = {
    "prime": Provider(None, "PRIME_API_KEY"),
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "minimax": Provider("https://api.minimax.chat/v1", "MINIMAX_API_KEY"),
    "glm": Provider("https://open.bigmodel.cn/api/paas/v4", "GLM_API_KEY"),
    "local": Provider("http://localhost:8000/v1", "VLLM_API_KEY"),
    "vllm": Provider("http://localhost:8000/v1", "VLLM_API_KEY"),
}
