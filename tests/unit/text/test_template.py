from __future__ import annotations

from datetime import datetime

import pytest

from octavo.errors import InvalidInput
from octavo.text.template import ChatTemplate
from tiny_tokenizers import byte_level

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PARTS = "{% for m in messages %}{% for part in m.content %}[{{ part.type }}:{{ part.text }}]{% endfor %}{% endfor %}"
HI = [{"role": "user", "content": "Hi"}]


def render(source, messages=HI, **options):
    return ChatTemplate(source, byte_level(), now=lambda: datetime(2024, 5, 6)).render(messages, **options)


def test_messages_and_generation_prompt():
    assert render(CHATML) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_text_parts_are_joined_for_templates_of_strings():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "one\ntwo"


def test_templates_that_loop_over_parts_get_parts():
    assert render(PARTS, [{"role": "user", "content": [{"type": "text", "text": "one"}]}]) == "[text:one]"
    assert render(PARTS) == "[text:Hi]"


def test_a_string_stays_one_where_the_template_asks():
    source = (
        "{% for m in messages %}{% if m.content is string %}S{{ m.content }}{% else %}"
        + PARTS
        + "{% endif %}{% endfor %}"
    )
    assert render(source) == "SHi"


def test_content_none_is_empty():
    assert render("[{{ messages[0].content }}]", [{"role": "assistant", "content": None}]) == "[]"


@pytest.mark.parametrize("content", ["Once upon ", [{"type": "text", "text": "Once upon "}]])
def test_a_final_message_can_be_continued(content):
    messages = [*HI, {"role": "assistant", "content": content}]
    text = render(CHATML, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nOnce upon "


def test_continuing_excludes_a_new_answer():
    with pytest.raises(InvalidInput, match="only one of them") as caught:
        render(CHATML, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}", "<|start|>"),
        ("{{ strftime_now('%d %b %Y') }}", "06 May 2024"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ tools is none }} {{ flag }}", "True 7"),
    ],
)
def test_what_templates_expect_is_there(source, expected):
    assert render(source, flag=7) == expected


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ messages.append(1) }}", "not allowed|unsafe|SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "not allowed|unsafe"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "OverflowError"),
        ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "more than 16777216 characters"),
    ],
)
def test_what_goes_wrong_names_the_messages(source, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        render(source)
    assert caught.value.param == "messages"


def test_rendering_is_bounded_in_time():
    times = iter(range(0, 1000, 3))
    template = ChatTemplate("{% for i in range(100) %}x{% endfor %}", byte_level(), clock=lambda: float(next(times)))
    with pytest.raises(InvalidInput, match="more than 5 s"):
        template.render(HI)


def test_a_template_that_does_not_parse():
    with pytest.raises(InvalidInput, match="does not parse") as caught:
        ChatTemplate("{% if %}", byte_level())
    assert caught.value.param == "chat_template"


def test_a_model_without_a_template_says_how_to_give_one():
    with pytest.raises(InvalidInput, match="--chat-template") as caught:
        ChatTemplate(None, byte_level()).render(HI)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([*HI, {"role": "user", "content": 5}], "messages[1].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ],
)
def test_a_bad_message_is_named(messages, field):
    with pytest.raises(InvalidInput) as caught:
        render(CHATML, messages)
    assert caught.value.param == field


def test_template_arguments_cannot_replace_the_messages():
    with pytest.raises(InvalidInput, match="strftime_now cannot be set"):
        render(CHATML, strftime_now=1)
