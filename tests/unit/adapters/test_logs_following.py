import json
import logging
import os

from riglm.adapters.telemetry.logs import JsonLogs


def test_another_level_and_other_secrets_count_from_the_next_record_on() -> None:
    reader, writer = os.pipe()
    logger = logging.getLogger("riglm.test")
    with JsonLogs(level="warning", secrets=["canary-one"], descriptor=writer) as logs:
        logger.info("not yet")
        logs.follow("debug", ["canary-two"])
        logger.debug("now canary-two")
        logs.follow("error", [])
        logger.warning("no more")
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert [json.loads(line)["event"] for line in file] == ["now ***"]
