"""Spark for tests."""

import pytest


@pytest.fixture(scope="session")
def submit_options() -> list[str]:
    """For spark-submit: without what pays only in long runs, such as compiling each query and the last percent of speed."""
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.ui.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "4",
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
