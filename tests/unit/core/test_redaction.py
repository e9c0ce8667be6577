import pytest

from sweeper.core.redaction import redact_argv, redact_env, redact_text, redact_value, secret_name

SECRET = "s3cr3t-Value-0987654321"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "--api-key",
        "admin_api_key",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "ssl_keyfile_password",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "speculative_num_draft_tokens",
        "tokenizer_path",
        "eos_token",
        "speculative_token_map",
        "key_value",
        "num_keys",
    ],
)
def test_names_that_only_sound_like_secrets(name: str) -> None:
    assert not secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        f"https://me:{SECRET}@host/x",
        f"https://host/x?api_key={SECRET}&v=1",
        f"Authorization: Bearer {SECRET}",
        f"--api-key {SECRET} --tp 2",
        f"--admin-api-key={SECRET}",
        f"ServerArgs(api_key='{SECRET}', tp_size=2)",
        f'{{"hf_token": "{SECRET}"}}',
    ],
)
def test_secrets_in_text_are_hidden(text: str) -> None:
    shown = redact_text(text)
    assert SECRET not in shown and "***" in shown


def test_text_without_secrets_stays_as_it_is() -> None:
    text = "python -m sglang.launch_server --max-total-tokens 8192 --tokenizer-path /m api_key=None num_draft_tokens=4"
    assert redact_text(text) == text


def test_arguments_in_both_spellings() -> None:
    argv = ("python", "--api-key", SECRET, "--tp", "2", f"--admin-api-key={SECRET}", "--model", "/m")
    assert redact_argv(argv) == ("python", "--api-key", "***", "--tp", "2", "--admin-api-key=***", "--model", "/m")


def test_environments_keep_their_names() -> None:
    env = {"HF_TOKEN": SECRET, "PATH": "/bin", "PROXY": f"http://u:{SECRET}@p:1"}
    assert redact_env(env) == {"HF_TOKEN": "***", "PATH": "/bin", "PROXY": "http://u:***@p:1"}


def test_nested_values_keep_numbers_and_nulls() -> None:
    info = {
        "api_key": SECRET,
        "admin_api_key": None,
        "max_tokens": 5,
        "inner": [{"password": SECRET, "launch_command": f"--api-key {SECRET}"}],
    }
    assert redact_value(info) == {
        "api_key": "***",
        "admin_api_key": None,
        "max_tokens": 5,
        "inner": [{"password": "***", "launch_command": "--api-key ***"}],
    }


def test_secrets_in_a_list_of_words_are_hidden_like_those_of_a_command() -> None:
    prefix = ["docker", "run", "-e", "MY_TOKEN=hunter2", "--password", "hunter2", "image"]
    assert redact_value({"command_prefix": prefix}) == {
        "command_prefix": ["docker", "run", "-e", "MY_TOKEN=***", "--password", "***", "image"]
    }
