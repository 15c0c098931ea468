"""The part that all pipelines share: input and brokers on one side, Spark on the other, kills, checks and reports."""
