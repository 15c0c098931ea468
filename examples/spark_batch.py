"""Spark: a batch job that reads a topic, counts, and writes the counts to another one.

Needs PySpark and Java 17; Spark fetches its Kafka connector from Maven Central when the session starts.
"""

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import pykbroker

SCALA = "2.12" if pyspark.__version__.startswith("3.") else "2.13"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{pyspark.__version__}"


def main():
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    spark = session.config("spark.jars.packages", CONNECTOR).getOrCreate()
    with pykbroker.LocalBroker(topics={"clicks": 2, "counts": 1}) as broker:
        for page in ("home", "shop", "home", "home"):
            broker.produce("clicks", "click", key=page)

        servers = broker.bootstrap_servers
        clicks = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "clicks")
        counts = clicks.load().groupBy("key").count().select("key", f.col("count").cast("string").alias("value"))
        counts.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "counts").save()

        found = {record.key.decode(): int(record.value) for record in broker.consume("counts", 2)}
    spark.stop()
    print("clicks:", dict(sorted(found.items())))


if __name__ == "__main__":
    main()
