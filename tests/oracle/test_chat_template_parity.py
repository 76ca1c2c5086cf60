"""Chat templates and tokenizers against transformers."""

from __future__ import annotations

import json

import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from data.texts import TEXTS
from octavo.hub.files import ModelFiles
from octavo.text.template import ChatTemplate
from octavo.text.tokenizer import load_tokenizer
from tiny_tokenizers import BOS, EOS, byte_level_backend

TEMPLATES = {
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "trimmed": (
        "{{- bos_token }}\n"
        "{%- if messages[0]['role'] == 'system' %}\n"
        "    {%- set system = messages[0]['content']|trim %}\n"
        "    {%- set rest = messages[1:] %}\n"
        "{%- else %}\n"
        "    {%- set system = '' %}\n"
        "    {%- set rest = messages %}\n"
        "{%- endif %}\n"
        "[SYS]{{ system }}[/SYS]\n"
        "{%- for m in rest %}\n"
        "    {{- '<' + m.role + '>' + m.content | trim + '</' + m.role + '>' }}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}"
    ),
    "namespace": (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{% if loop.index0 > ns.last %}>{% endif %}{{ m.role }}: {{ m.content }}"
        "{{ eos_token }}\n"
        "{% if not loop.last %}  {% continue %}{% endif %}END\n{% endfor %}"
    ),
    "tools": (
        "{% if tools is not none and tools %}{% for t in tools %}{{ t | tojson(indent=2) }}\n{% endfor %}{% endif %}"
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}|{% endfor %}"
    ),
}

CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "  Be brief. "}, {"role": "user", "content": "What is <b>2 & 2</b>?\n"}],
    [
        {"role": "user", "content": "Grüße 👋"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "你好\n\n  again  "},
        {"role": "assistant", "content": "Once upon a"},
    ],
]

TOOLS = [{"type": "function", "function": {"name": "größe", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same folder read by both."""
    folder = tmp_path_factory.mktemp("tokenizer")
    theirs = PreTrainedTokenizerFast(tokenizer_object=byte_level_backend(), bos_token=BOS, eos_token=EOS)
    theirs.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, 0)]
    )
    theirs.save_pretrained(folder)
    return load_tokenizer(ModelFiles("m", "safetensors", {}, (), folder)), theirs


def test_ids_are_equal_with_and_without_special_tokens(pair):
    ours, theirs = pair
    for text in TEXTS:
        for special in (True, False):
            assert ours.encode(text, add_special_tokens=special) == theirs.encode(text, add_special_tokens=special)
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)


def test_text_is_equal(pair):
    ours, theirs = pair
    for text in TEXTS:
        ids = ours.encode(text)
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(
                ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
            )


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("number", range(len(CHATS)))
@pytest.mark.parametrize("has_prompt", [True, False])
def test_prompts_are_equal(pair, name, number, has_prompt):
    ours, theirs = pair
    tools = TOOLS if name == "tools" else None
    mine = ChatTemplate(TEMPLATES[name], ours).render(CHATS[number], has_prompt, tools=tools)
    assert mine == theirs.apply_chat_template(
        CHATS[number],
        chat_template=TEMPLATES[name],
        add_generation_prompt=has_prompt,
        tools=json.loads(json.dumps(tools)),
        tokenize=False,
    )


@pytest.mark.parametrize("name", ["chatml", "trimmed", "tools"])
def test_continued_messages_are_equal(pair, name):
    ours, theirs = pair
    mine = ChatTemplate(TEMPLATES[name], ours).render(CHATS[2], False, continue_final_message=True)
    assert mine == theirs.apply_chat_template(
        CHATS[2], chat_template=TEMPLATES[name], continue_final_message=True, tokenize=False
    )
