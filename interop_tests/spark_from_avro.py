"""Spark reads what confluent-kafka's Avro serializer wrote: `spark_from_avro.py BOOTSTRAP TOPIC SCHEMA`; prints JSON.

A value begins with a zero and the id of its schema in four bytes (Confluent's wire format), which `from_avro` does not
know.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SPARK_JOBS = Path(__file__).resolve().parent.parent / "spark_jobs"


def main() -> None:
    """Print the rows of the topic, in the order of their ids."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    sys.path.insert(0, str(SPARK_JOBS))
    from session import build_session

    bootstrap, topic, schema = sys.argv[1:]
    spark = build_session("from-avro", packages=("org.apache.spark:spark-avro_{scala}:{spark}",))
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.read.format("kafka").options(**options).load()
    body = f.expr("substring(value, 6, length(value) - 5)")
    rows = records.select(from_avro(body, schema).alias("purchase")).select("purchase.*").orderBy("id").collect()
    print(json.dumps([row.asDict() for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main()
