// Load on a Kafka broker by franz-go clients, and the latencies that they see.
//
//	load SHAPE [flags]
//
//	produce   every client sends one record and waits for its response before it sends the next
//	endtoend  a record is sent when a consumer has received the one before it
//	rate      records at a fixed rate, whatever the broker's answers; latency from the time at which each was due.
//	          They go to one partition for a while and then to another, or with -in-turn to all in turn
//	bulk      so many records as fast as they go, in batches; latency from the call to the acknowledgement
//	consume   reads so many records from the beginning, without a group
//	transact  every client commits one transaction after the other; latency of the commit alone, and of
//	          the whole, from before its first record
//	group     members of one group come, and one leaves; see group.go for how it talks
//
// It prints one line of JSON: records, seconds, and latencies in microseconds. In `transact` a transaction counts as one.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const warmUp = time.Second

type settings struct {
	brokers, topic, codec             string
	clients, size, perSecond          int
	records, buffered, keys, together int
	transactionsPerSecond             int
	inTurn                            bool
	duration                          time.Duration
}

type latency struct {
	P50  float64 `json:"p50_us"` // 0, as the others, where a shape has no latency
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Mean float64 `json:"mean_us"` // in no table: of a shape whose client keeps n records under way it is n / throughput
}

type result struct {
	Sent    int     `json:"sent"` // with those of the first second
	Records int     `json:"records"`
	Seconds float64 `json:"seconds"`
	latency
	Whole *latency `json:"whole,omitempty"` // of whole transactions
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func connect(with settings, options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(with.brokers, ",")...),
		kgo.DefaultProduceTopic(with.topic),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(1_000_000),
	}
	client, err := kgo.NewClient(append(base, options...)...)
	check(err)
	return client
}

func percentiles(latencies []time.Duration) latency {
	slices.Sort(latencies)
	at := func(share float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		place := min(int(share*float64(len(latencies))), len(latencies)-1)
		return float64(latencies[place].Nanoseconds()) / 1000
	}
	var sum time.Duration
	for _, took := range latencies {
		sum += took
	}
	mean := float64(sum.Nanoseconds()) / 1000 / float64(max(len(latencies), 1))
	return latency{at(0.5), at(0.99), at(0.999), at(1), mean}
}

func summary(sent int, latencies []time.Duration, took time.Duration) result {
	return result{sent, len(latencies), took.Seconds(), percentiles(latencies), nil}
}

func main() {
	shapes := map[string]func(settings) any{
		"produce": produce, "endtoend": endToEnd, "rate": rate,
		"bulk": bulk, "consume": consume, "transact": transact, "group": group,
	}
	if len(os.Args) < 2 || shapes[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: load produce|endtoend|rate|bulk|consume|transact|group [flags]")
		os.Exit(2)
	}
	var with settings
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	flags.StringVar(&with.brokers, "brokers", "localhost:9092", "bootstrap servers")
	flags.StringVar(&with.topic, "topic", "bench", "topic, which exists")
	flags.IntVar(&with.clients, "clients", 1, "clients of produce, transact and group")
	flags.IntVar(&with.size, "size", 100, "bytes of a record's value")
	flags.IntVar(&with.perSecond, "per-second", 20_000, "records a second of rate")
	flags.BoolVar(&with.inTurn, "in-turn", false, "the records of rate go to all partitions in turn")
	flags.IntVar(&with.records, "records", 100_000, "records of bulk and consume")
	flags.IntVar(&with.buffered, "buffered", 10_000, "records that bulk has under way at a time")
	flags.IntVar(&with.keys, "keys", 0, "different keys of bulk; 0 for records without keys")
	flags.IntVar(&with.together, "together", 10, "records of a transaction")
	flags.IntVar(&with.transactionsPerSecond, "transactions-per-second", 0, "of all clients of transact; 0 for no limit")
	flags.StringVar(&with.codec, "codec", "none", "compression of bulk: none, gzip, snappy, lz4, zstd")
	flags.DurationVar(&with.duration, "duration", 5*time.Second, "time that is counted, after a second that is not")
	check(flags.Parse(os.Args[2:]))
	check(json.NewEncoder(os.Stdout).Encode(shapes[os.Args[1]](with)))
}
