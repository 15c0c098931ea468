package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const settleTimeout = 5 * time.Minute

// owned has the partitions of each member as the members were told.
type owned struct {
	lock       sync.Mutex
	partitions []map[int32]bool
	changed    chan struct{}
}

func (all *owned) change(member int, lists map[string][]int32, have bool) {
	all.lock.Lock()
	for _, partitions := range lists {
		for _, partition := range partitions {
			if have {
				all.partitions[member][partition] = true
			} else {
				delete(all.partitions[member], partition)
			}
		}
	}
	all.lock.Unlock()
	select {
	case all.changed <- struct{}{}:
	default:
	}
}

// settled is true if every member but the one that left has partitions, and each partition has one owner.
func (all *owned) settled(partitions, left int) bool {
	all.lock.Lock()
	defer all.lock.Unlock()
	owners := map[int32]bool{}
	total := 0
	for member, mine := range all.partitions {
		if member == left {
			continue
		}
		if len(mine) == 0 {
			return false
		}
		for partition := range mine {
			owners[partition] = true
			total++
		}
	}
	return len(owners) == partitions && total == partitions
}

func (all *owned) wait(partitions, left int) {
	timeout := time.After(settleTimeout)
	for !all.settled(partitions, left) {
		select {
		case <-all.changed:
		case <-timeout:
			check(fmt.Errorf("the group was not settled after %s", settleTimeout))
		}
	}
}

// group starts the members of a group over a topic of two partitions a member, all at a time, and prints
// {"assigned_s": ...} when each partition has one owner. At a line on standard input the first member leaves, and
// {"rebalance_s": ...} is the last line. Heartbeats come every three seconds, as with Java's client; one of them is what
// tells a member of a rebalance.
func group(with settings) any {
	partitions := 2 * with.clients
	all := &owned{partitions: make([]map[int32]bool, with.clients), changed: make(chan struct{}, 1)}
	clients := make([]*kgo.Client, with.clients)
	began := time.Now()
	for member := range with.clients {
		all.partitions[member] = map[int32]bool{}
	}
	for member := range with.clients {
		clients[member] = connect(with, kgo.ConsumerGroup(with.topic), kgo.ConsumeTopics(with.topic),
			kgo.HeartbeatInterval(3*time.Second), kgo.DisableAutoCommit(), kgo.FetchMaxWait(5*time.Second),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, lists map[string][]int32) {
				all.change(member, lists, true)
			}),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lists map[string][]int32) {
				all.change(member, lists, false)
			}),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lists map[string][]int32) {
				all.change(member, lists, false)
			}))
		go func() {
			for !clients[member].PollFetches(context.Background()).IsClientClosed() {
			}
		}()
	}
	all.wait(partitions, -1)
	check(json.NewEncoder(os.Stdout).Encode(map[string]float64{"assigned_s": time.Since(began).Seconds()}))
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	began = time.Now()
	// It returns when the group has been told.
	clients[0].LeaveGroup()
	all.wait(partitions, 0)
	took := time.Since(began)
	// Members that leave one after the other would make a rebalance each, which nobody wants to wait for.
	return map[string]float64{"rebalance_s": took.Seconds()}
}
