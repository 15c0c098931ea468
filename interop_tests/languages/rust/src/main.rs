//! Scenarios of rskafka, one action a process.
//!
//!     PROGRAM ACTION '{"bootstrap": "127.0.0.1:9092", "topic": "t"}'

use std::collections::BTreeMap;
use std::error::Error as AnyError;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::DateTime;
use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn AnyError>>;

const TIMEOUT_MS: i32 = 30_000;
const FETCH_BYTES: i32 = 50 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, action, settings] = arguments.as_slice() else {
        eprintln!("usage: PROGRAM ACTION SETTINGS");
        return ExitCode::from(2);
    };
    let settings: Value = serde_json::from_str(settings).expect("settings are JSON");
    let outcome = match action.as_str() {
        "create_topic" => create_topic(&settings).await,
        "produce" => produce(&settings).await,
        "consume" => consume(&settings).await,
        "offsets" => offsets(&settings).await,
        "describe_topic" => describe_topic(&settings).await,
        "delete_topic" => delete_topic(&settings).await,
        unknown => {
            eprintln!("rskafka has no action {unknown}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.downcast_ref::<Error>().and_then(code_of);
            println!("{}", json!({"error": code, "message": error.to_string()}));
            ExitCode::FAILURE
        }
    }
}

/// Code of Kafka's protocol in an error; the client has names for those that it knows.
fn code_of(error: &Error) -> Option<i16> {
    match error {
        Error::ServerError { protocol_error, .. } => {
            (-1..200).find(|code| ProtocolError::new(*code) == Some(*protocol_error))
        }
        _ => None,
    }
}

fn text<'a>(settings: &'a Value, name: &str) -> &'a str {
    settings[name].as_str().unwrap_or_default()
}

async fn connect(settings: &Value) -> Outcome<Client> {
    let mut builder = ClientBuilder::new(vec![text(settings, "bootstrap").to_owned()])
        // The default waits for minutes, and tries for ever.
        .backoff_config(BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(1),
            deadline: Some(Duration::from_secs(20)),
            ..Default::default()
        });
    if let Some(user) = settings["user"].as_str() {
        builder = builder.sasl_config(SaslConfig::Plain(Credentials::new(
            user.to_owned(),
            text(settings, "password").to_owned(),
        )));
    }
    Ok(builder.build().await?)
}

async fn partition(client: &Client, topic: &str, number: i32) -> Outcome<PartitionClient> {
    let handling = UnknownTopicHandling::Error;
    Ok(client.partition_client(topic, number, handling).await?)
}

/// Numbers of a topic's partitions. An unknown topic is told by the first of them, as the list leaves it out.
async fn partitions(client: &Client, topic: &str) -> Outcome<Vec<i32>> {
    let topics = client.list_topics().await?;
    match topics.into_iter().find(|found| found.name == topic) {
        Some(found) => Ok(found.partitions.into_iter().collect()),
        None => {
            partition(client, topic, 0).await?;
            Ok(vec![])
        }
    }
}

fn decoded(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| BASE64_STANDARD.decode(text).expect("base64"))
}

fn encoded(data: &Option<Vec<u8>>) -> Value {
    data.as_ref().map_or(Value::Null, |data| BASE64_STANDARD.encode(data).into())
}

fn record_of(line: &Value) -> Record {
    let headers = line["headers"].as_array().expect("headers").iter();
    Record {
        key: decoded(&line["key"]),
        value: decoded(&line["value"]),
        headers: headers
            .map(|one| (text(one, "key").to_owned(), decoded(&one["value"]).unwrap_or_default()))
            .collect::<BTreeMap<_, _>>(),
        timestamp: DateTime::from_timestamp_millis(line["timestamp_ms"].as_i64().expect("timestamp_ms"))
            .expect("a time"),
    }
}

async fn create_topic(settings: &Value) -> Outcome {
    let partitions = settings["partitions"].as_i64().unwrap_or(1) as i32;
    let controller = connect(settings).await?.controller_client()?;
    Ok(controller.create_topic(text(settings, "topic"), partitions, 1, TIMEOUT_MS).await?)
}

async fn delete_topic(settings: &Value) -> Outcome {
    let controller = connect(settings).await?.controller_client()?;
    Ok(controller.delete_topic(text(settings, "topic"), TIMEOUT_MS).await?)
}

/// Batches of records on standard input; an empty line ends each.
async fn produce(settings: &Value) -> Outcome {
    let client = connect(settings).await?;
    let compression = match text(settings, "codec") {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let mut clients = BTreeMap::new();
    let mut batch: Vec<Value> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !line.is_empty() {
            batch.push(serde_json::from_str(&line)?);
            continue;
        }
        let mut records: BTreeMap<i64, Vec<Record>> = BTreeMap::new();
        for one in &batch {
            let number = one["partition"].as_i64().expect("partition");
            records.entry(number).or_default().push(record_of(one));
        }
        let mut acknowledged = BTreeMap::new();
        for (number, records) in records {
            if !clients.contains_key(&number) {
                clients.insert(number, partition(&client, text(settings, "topic"), number as i32).await?);
            }
            let result = clients[&number].produce(records, compression).await?;
            acknowledged.insert(number, result.into_iter());
        }
        for one in &batch {
            let number = one["partition"].as_i64().expect("partition");
            let offset = acknowledged.get_mut(&number).and_then(Iterator::next);
            println!("{}", json!({"partition": number, "offset": offset}));
        }
        batch.clear();
    }
    Ok(())
}

async fn consume(settings: &Value) -> Outcome {
    let client = connect(settings).await?;
    let topic = text(settings, "topic");
    for number in partitions(&client, topic).await? {
        let partition = partition(&client, topic, number).await?;
        let end = partition.get_offset(OffsetAt::Latest).await?;
        let mut next = partition.get_offset(OffsetAt::Earliest).await?;
        while next < end {
            let (found, _) = partition.fetch_records(next, 1..FETCH_BYTES, 500).await?;
            for one in found {
                let Record { key, value, headers, timestamp } = &one.record;
                let headers: Vec<Value> = headers
                    .iter()
                    .map(|(name, data)| json!({"key": name, "value": encoded(&Some(data.clone()))}))
                    .collect();
                let line = json!({
                    "partition": number, "offset": one.offset, "timestamp_ms": timestamp.timestamp_millis(),
                    "key": encoded(key), "value": encoded(value), "headers": headers,
                });
                println!("{line}");
                next = one.offset + 1;
            }
        }
    }
    Ok(())
}

async fn offsets(settings: &Value) -> Outcome {
    let client = connect(settings).await?;
    let topic = text(settings, "topic");
    let time = settings["timestamp_ms"].as_i64().expect("timestamp_ms");
    let time = DateTime::from_timestamp_millis(time).expect("a time");
    for number in partitions(&client, topic).await? {
        let partition = partition(&client, topic, number).await?;
        let earliest = partition.get_offset(OffsetAt::Earliest).await?;
        let latest = partition.get_offset(OffsetAt::Latest).await?;
        let by_time = partition.get_offset(OffsetAt::Timestamp(time)).await?;
        let line = json!({"partition": number, "earliest": earliest, "latest": latest, "by_time": by_time});
        println!("{line}");
    }
    Ok(())
}

/// The client tells no leaders and replicas, only the numbers of partitions.
async fn describe_topic(settings: &Value) -> Outcome {
    let client = connect(settings).await?;
    for number in partitions(&client, text(settings, "topic")).await? {
        println!("{}", json!({"partition": number}));
    }
    Ok(())
}
