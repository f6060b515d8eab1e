from riglm.domain.retrieval.scoring import LexicalIndex
from riglm.domain.retrieval.words import words
from riglm.domain.tool import ToolProfile

TOOLS = (
    ToolProfile(name="send_mail", description="Deliver a message"),
    ToolProfile(name="archive", description="Put an old mail away", parameters=("folder",)),
    ToolProfile(name="plot", description="Draw a chart", parameter_descriptions=("the folder to draw",)),
)


def test_a_word_counts_more_in_a_name_than_in_a_description():
    scores = LexicalIndex(TOOLS).scores(words("mail"))
    assert scores[0] > scores[1] > scores[2] == 0


def test_a_word_said_by_few_tools_counts_more_than_one_said_by_many():
    tools = [ToolProfile(name=f"t{number}", description="common words") for number in range(9)]
    index = LexicalIndex([*tools, ToolProfile(name="t9", description="rare words")])
    assert index.scores(["rare"]).max() > index.scores(["common"]).max()


def test_a_description_that_lists_the_words_of_all_tools_counts_less_than_their_own():
    tools = [ToolProfile(name=f"t{at}", description=f"word{at} other{at} third{at}") for at in range(40)]
    everything = ToolProfile(name="all", description=" ".join(tool.description for tool in tools))
    scores = LexicalIndex([*tools, everything]).scores(words("word7 third7"))
    assert scores.argmax() == 7
    assert scores[-1] < scores[7] / 4


def test_coverage_is_whole_when_one_tool_says_every_word_and_nothing_when_none_does():
    index = LexicalIndex(TOOLS)
    assert index.coverage(["send", "message"]).max() == 1
    assert not index.coverage(["zeppelin"]).any()
    assert 0 < index.coverage(["message", "zeppelin"]).max() < 1
