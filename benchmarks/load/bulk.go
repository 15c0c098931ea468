// Shapes of many records at a time.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var words = []string{
	"order", "customer", "amount", "currency", "created", "updated", "warehouse", "parcel", "address", "status",
	"pending", "shipped", "returned", "invoice", "discount", "article", "quantity", "carrier", "weight", "reference",
}

// texts are values like those of real records: words and numbers, of which a codec makes a third or so. They are the
// same in every run.
func texts(size int) [][]byte {
	random := rand.New(rand.NewSource(1))
	all := make([][]byte, 200)
	for number := range all {
		var text []byte
		for len(text) < size {
			text = append(text, words[random.Intn(len(words))]...)
			text = append(text, '=')
			text = strconv.AppendInt(text, random.Int63n(1_000_000), 10)
			text = append(text, ' ')
		}
		all[number] = text[:size]
	}
	return all
}

func compression(name string) kgo.CompressionCodec {
	switch name {
	case "none":
		return kgo.NoCompression()
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	fmt.Fprintln(os.Stderr, "load: no such codec:", name)
	os.Exit(2)
	panic("not reached")
}

// bulk sends records in batches as fast as they go. Without keys they go to all partitions in turn.
func bulk(with settings) any {
	partitioner := kgo.RoundRobinPartitioner()
	if with.keys > 0 {
		partitioner = kgo.StickyKeyPartitioner(nil)
	}
	client := connect(with, kgo.MaxBufferedRecords(with.buffered), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchCompression(compression(with.codec)), kgo.RecordPartitioner(partitioner))
	defer client.Close()
	values := texts(with.size)
	random := rand.New(rand.NewSource(1))
	latencies := make([]time.Duration, 0, with.records)
	var lock sync.Mutex
	began := time.Now()
	for number := range with.records {
		record := &kgo.Record{Value: values[number%len(values)]}
		if with.keys > 0 {
			record.Key = strconv.AppendInt(nil, int64(random.Intn(with.keys)), 10)
		}
		sent := time.Now()
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			check(err)
			lock.Lock()
			latencies = append(latencies, time.Since(sent))
			lock.Unlock()
		})
	}
	check(client.Flush(context.Background()))
	return summary(with.records, latencies, time.Since(began))
}

// consume reads records from the beginning of all partitions until it has had enough.
func consume(with settings) any {
	began := time.Now()
	client := connect(with, kgo.ConsumeTopics(with.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	count := 0
	for count < with.records {
		fetches := client.PollFetches(context.Background())
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if len(record.Value) != with.size {
				check(fmt.Errorf("a record has %d bytes", len(record.Value)))
			}
			count++
		})
	}
	return result{Sent: count, Records: count, Seconds: time.Since(began).Seconds()}
}

// transact commits transactions, one after the other with each client; the first second is not counted. With a rate the
// clients begin them at fixed times, in turn; a client that is late begins the next one at once. A broker may let a
// client wait for the end of its last transaction when it commits or when it begins the next one (Kafka answers
// CONCURRENT_TRANSACTIONS there), so that both the commit and the whole transaction are timed.
func transact(with settings) any {
	var group sync.WaitGroup
	commits := make([][]time.Duration, with.clients)
	wholes := make([][]time.Duration, with.clients)
	sent := make([]int, with.clients)
	values := texts(with.size)
	counted := time.Now().Add(warmUp)
	end := counted.Add(with.duration)
	for number := range with.clients {
		group.Add(1)
		go func() {
			defer group.Done()
			client := connect(with, kgo.TransactionalID(fmt.Sprintf("%s-%d", with.topic, number)))
			defer client.Close()
			next := time.Now()
			if with.transactionsPerSecond > 0 {
				next = next.Add(time.Duration(number) * time.Second / time.Duration(with.transactionsPerSecond))
			}
			for {
				if with.transactionsPerSecond > 0 {
					time.Sleep(time.Until(next))
					next = next.Add(time.Duration(with.clients) * time.Second / time.Duration(with.transactionsPerSecond))
				}
				began := time.Now()
				if began.After(end) {
					return
				}
				check(client.BeginTransaction())
				records := make([]*kgo.Record, with.together)
				for place := range records {
					records[place] = &kgo.Record{Value: values[place%len(values)]}
				}
				check(client.ProduceSync(context.Background(), records...).FirstErr())
				commit := time.Now()
				check(client.EndTransaction(context.Background(), kgo.TryCommit))
				sent[number]++
				if began.After(counted) {
					commits[number] = append(commits[number], time.Since(commit))
					wholes[number] = append(wholes[number], time.Since(began))
				}
			}
		}()
	}
	group.Wait()
	total := 0
	for number := range with.clients {
		total += sent[number]
	}
	found := summary(total, slices.Concat(commits...), with.duration)
	whole := percentiles(slices.Concat(wholes...))
	found.Whole = &whole
	return found
}
