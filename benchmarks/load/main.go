// Load on a Kafka broker by franz-go clients, and the latencies that they see.
//
//	load SHAPE [flags]
//
//	produce   every client sends one record and waits for its response before it sends the next
//	endtoend  a record is sent when a consumer has received the one before it
//	rate      records at a fixed rate, whatever the broker's answers; latency from the time at which each was due
//
// It prints one line of JSON: records, seconds, and latencies in microseconds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const warmUp = time.Second

type settings struct {
	brokers, topic           string
	clients, size, perSecond int
	duration                 time.Duration
}

type result struct {
	Sent    int     `json:"sent"` // with those of the first second
	Records int     `json:"records"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	P999    float64 `json:"p999_us"`
	Max     float64 `json:"max_us"`
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

func summary(sent int, latencies []time.Duration, took time.Duration) result {
	slices.Sort(latencies)
	at := func(share float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		place := min(int(share*float64(len(latencies))), len(latencies)-1)
		return float64(latencies[place].Nanoseconds()) / 1000
	}
	return result{sent, len(latencies), took.Seconds(), at(0.5), at(0.99), at(0.999), at(1)}
}

// produce sends records one after the other with each client; the first second is not counted.
func produce(with settings) result {
	var group sync.WaitGroup
	all := make([][]time.Duration, with.clients)
	var sent atomic.Int64
	counted := time.Now().Add(warmUp)
	end := counted.Add(with.duration)
	for number := range with.clients {
		group.Add(1)
		go func() {
			defer group.Done()
			client := connect(with)
			defer client.Close()
			value := make([]byte, with.size)
			for {
				began := time.Now()
				if began.After(end) {
					return
				}
				check(client.ProduceSync(context.Background(), &kgo.Record{Value: value}).FirstErr())
				sent.Add(1)
				if began.After(counted) {
					all[number] = append(all[number], time.Since(began))
				}
			}
		}()
	}
	group.Wait()
	return summary(int(sent.Load()), slices.Concat(all...), with.duration)
}

// endToEnd sends a record, waits for it in a consumer with its own connections, and sends the next.
func endToEnd(with settings) result {
	producer := connect(with)
	defer producer.Close()
	consumer := connect(with, kgo.ConsumeTopics(with.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.FetchMaxWait(time.Second))
	defer consumer.Close()
	received := make(chan string, 1000)
	go func() {
		for {
			fetches := consumer.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			check(fetches.Err())
			fetches.EachRecord(func(record *kgo.Record) { received <- string(record.Value[:20]) })
		}
	}()
	send := func(number int) string {
		value := make([]byte, max(with.size, 20))
		name := fmt.Sprintf("%020d", number)
		copy(value, name)
		producer.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) { check(err) })
		return name
	}
	// The consumer begins at the end of the log, at some time: records are sent until one arrives.
	number := 0
	for begun := false; !begun; number++ {
		send(number)
		select {
		case <-received:
			begun = true
		case <-time.After(200 * time.Millisecond):
		}
	}
	time.Sleep(time.Second)
	for len(received) > 0 {
		<-received
	}
	var latencies []time.Duration
	counted := time.Now().Add(warmUp)
	end := counted.Add(with.duration)
	for ; ; number++ {
		began := time.Now()
		if began.After(end) {
			break
		}
		name := send(number)
		for <-received != name {
		}
		if began.After(counted) {
			latencies = append(latencies, time.Since(began))
		}
	}
	return summary(number, latencies, with.duration)
}

// rate sends the records that are due every half millisecond.
func rate(with settings) result {
	client := connect(with)
	defer client.Close()
	value := make([]byte, with.size)
	var lock sync.Mutex
	var latencies []time.Duration
	began := time.Now()
	counted := began.Add(warmUp)
	end := counted.Add(with.duration)
	interval := time.Second / time.Duration(with.perSecond)
	due, sent := began, 0
	for due.Before(end) {
		for !due.After(time.Now()) && due.Before(end) {
			at := due
			client.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				check(err)
				if at.After(counted) {
					took := time.Since(at)
					lock.Lock()
					latencies = append(latencies, took)
					lock.Unlock()
				}
			})
			due, sent = due.Add(interval), sent+1
		}
		time.Sleep(500 * time.Microsecond)
	}
	check(client.Flush(context.Background()))
	return summary(sent, latencies, with.duration)
}

func main() {
	shapes := map[string]func(settings) result{"produce": produce, "endtoend": endToEnd, "rate": rate}
	if len(os.Args) < 2 || shapes[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: load produce|endtoend|rate [flags]")
		os.Exit(2)
	}
	var with settings
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	flags.StringVar(&with.brokers, "brokers", "localhost:9092", "bootstrap servers")
	flags.StringVar(&with.topic, "topic", "bench", "topic, which exists")
	flags.IntVar(&with.clients, "clients", 1, "clients of produce")
	flags.IntVar(&with.size, "size", 100, "bytes of a record's value")
	flags.IntVar(&with.perSecond, "per-second", 20_000, "records a second of rate")
	flags.DurationVar(&with.duration, "duration", 5*time.Second, "time that is counted, after a second that is not")
	check(flags.Parse(os.Args[2:]))
	check(json.NewEncoder(os.Stdout).Encode(shapes[os.Args[1]](with)))
}
