// Shapes of small requests.
package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produce sends records one after the other with each client; the first second is not counted.
func produce(with settings) any {
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
func endToEnd(with settings) any {
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
func rate(with settings) any {
	var options []kgo.Opt
	if with.inTurn {
		options = append(options, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	}
	client := connect(with, options...)
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
