"""The policy file of `sweeper nightly run --policy`: thresholds, webhooks, retention. Every key has a default."""

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweeper.analysis.nightly.policy import MIN_EFFECTS, Policy, Quantity
from sweeper.errors import ConfigError


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Webhook(_Strict):
    """Where a verdict is sent. The address is a secret: only the name of its environment variable stands here."""

    url_env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable that holds the URL."""
    shape: Literal["json", "slack"] = "json"
    """`json`: the verdict; `slack`: {"text": …}, as Slack, Mattermost and others take it."""
    when: list[Literal["fine", "regressed", "improved", "unknown"]] = ["regressed", "improved", "unknown"]
    """Verdicts that are sent."""


class Retention(_Strict):
    """What is thrown away. Verdicts and the numbers of every night are kept for ever."""

    samples_days: int = Field(30, ge=0)
    """Requests (samples.parquet) and server logs older than this are deleted."""
    runs_days: int = Field(180, ge=0)
    """Run folders older than this are deleted."""
    max_gib: float | None = Field(None, gt=0)
    """Run folders are deleted, oldest first, until the history takes no more than this; the last night is kept."""


class Settings(_Strict):
    """The whole file."""

    alpha: float = Field(Policy().alpha, gt=0, lt=0.1)
    """One-sided chance of one test to call noise a change."""
    confirm_repeats: int = Field(Policy().confirm_repeats, ge=0, le=100)
    """Repeats of the second measurement of suspicious trials on the same night; 0: none."""
    min_nights: int = Field(Policy().min_nights, ge=1)
    """Good nights before anything is said."""
    level_nights: int = Field(Policy().level_nights, ge=5)
    """Good nights that make the level."""
    min_effects: dict[Quantity, float] = {}
    """Smallest relative change that is news, by quantity."""
    webhooks: list[Webhook] = []
    """Who is told."""
    retention: Retention = Retention()
    """What is thrown away, and when."""

    def policy(self) -> Policy:
        return Policy(
            alpha=self.alpha,
            confirm_repeats=self.confirm_repeats,
            min_nights=self.min_nights,
            level_nights=self.level_nights,
            min_effects={**MIN_EFFECTS, **self.min_effects},
        )


def read_settings(path: Path | None) -> Settings:
    """Raises ConfigError, one line."""
    if path is None:
        return Settings()
    try:
        return Settings.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; correct --policy") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(Settings.model_fields)
        raise ConfigError(f"{path}: {where}: {first['msg']}; the keys are {known}") from error
