package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramaActions = actions{
	"create_topic":     saramaCreateTopic,
	"produce":          saramaProduce,
	"consume":          saramaConsume,
	"member":           saramaMember,
	"transact":         saramaTransact,
	"copy":             saramaCopy,
	"offsets":          saramaOffsets,
	"describe_topic":   saramaDescribeTopic,
	"describe_configs": saramaDescribeConfigs,
	"alter_config":     saramaAlterConfig,
	"list_groups":      saramaListGroups,
	"group_offsets":    saramaGroupOffsets,
	"delete_group":     saramaDeleteGroup,
	"delete_topic":     saramaDeleteTopic,
}

func saramaCode(err error) (int16, bool) {
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return int16(topic.Err), true
	}
	var many sarama.ProducerErrors
	if errors.As(err, &many) {
		return saramaCode(many[0].Err)
	}
	var found sarama.KError
	if errors.As(err, &found) {
		return int16(found), true
	}
	return 0, false
}

func saramaConfig(s settings) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	// A commit waits for the fetch that went before it on the same connection.
	config.Consumer.MaxWaitTime = 20 * time.Millisecond
	// A producer outlives a restart of the broker.
	config.Producer.Retry.Max = 100
	config.Metadata.Retry.Max = 100
	config.Consumer.Return.Errors = false
	if s.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[s.Codec]
	if s.Idempotent || s.TransactionalID != "" {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	config.Producer.Transaction.ID = s.TransactionalID
	if s.User != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.User = s.User
		config.Net.SASL.Password = s.Password
		config.Metadata.Retry.Max = 0
	}
	return config
}

func withSaramaAdmin(s settings, do func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin([]string{s.Bootstrap}, saramaConfig(s))
	if err != nil {
		return err
	}
	defer admin.Close()
	return do(admin)
}

func withSaramaClient(s settings, do func(sarama.Client) error) error {
	client, err := sarama.NewClient([]string{s.Bootstrap}, saramaConfig(s))
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}

func saramaMessages(topic string, batch []record) []*sarama.ProducerMessage {
	var found []*sarama.ProducerMessage
	for _, one := range batch {
		sent := &sarama.ProducerMessage{Topic: topic, Partition: one.Partition, Timestamp: time.UnixMilli(one.TimestampMs)}
		if one.Key != nil {
			sent.Key = sarama.ByteEncoder(one.Key)
		}
		if one.Value != nil {
			sent.Value = sarama.ByteEncoder(one.Value)
		}
		for _, header := range one.Headers {
			sent.Headers = append(sent.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
		}
		found = append(found, sent)
	}
	return found
}

func saramaSeen(one *sarama.ConsumerMessage) record {
	seen := record{one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value, nil}
	for _, found := range one.Headers {
		seen.Headers = append(seen.Headers, header{string(found.Key), found.Value})
	}
	return seen
}

func saramaCreateTopic(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error {
		detail := &sarama.TopicDetail{NumPartitions: s.Partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
		for key, value := range s.Config {
			detail.ConfigEntries[key] = &value
		}
		return admin.CreateTopic(s.Topic, detail, false)
	})
}

func saramaProduce(s settings) error {
	producer, err := sarama.NewSyncProducer([]string{s.Bootstrap}, saramaConfig(s))
	if err != nil {
		return err
	}
	defer producer.Close()
	for batch := range batches() {
		messages := saramaMessages(s.Topic, batch)
		if err := producer.SendMessages(messages); err != nil {
			return err
		}
		for _, message := range messages {
			emit(acknowledgement{message.Partition, message.Offset})
		}
	}
	return nil
}

func saramaConsume(s settings) error {
	return withSaramaClient(s, func(client sarama.Client) error {
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return err
		}
		defer consumer.Close()
		partitions, err := client.Partitions(s.Topic)
		if err != nil {
			return err
		}
		for _, number := range partitions {
			end, err := client.GetOffset(s.Topic, number, sarama.OffsetNewest)
			if err != nil {
				return err
			}
			if end == 0 {
				continue
			}
			partition, err := consumer.ConsumePartition(s.Topic, number, sarama.OffsetOldest)
			if err != nil {
				return err
			}
			for one := range partition.Messages() {
				emit(saramaSeen(one))
				if one.Offset+1 >= end {
					break
				}
			}
			partition.AsyncClose()
		}
		return nil
	})
}

// Handler of a group whose member commits each record, then prints it.
type saramaMembership struct{}

func (saramaMembership) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaMembership) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (saramaMembership) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(one, "")
			session.Commit()
			emit(saramaSeen(one))
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaMember(s settings) error {
	group, err := sarama.NewConsumerGroup([]string{s.Bootstrap}, s.Group, saramaConfig(s))
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, stop := context.WithCancel(context.Background())
	whenInputEnds(stop)
	for ctx.Err() == nil {
		// A broker that restarts ends Consume with an error; the documented use is to call it again.
		if err := group.Consume(ctx, []string{s.Topic}, saramaMembership{}); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

func saramaTransact(s settings) error {
	producer, err := sarama.NewSyncProducer([]string{s.Bootstrap}, saramaConfig(s))
	if err != nil {
		return err
	}
	defer producer.Close()
	for one := range transactions() {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := producer.SendMessages(saramaMessages(s.Topic, one.Records)); err != nil {
			return err
		}
		end := producer.AbortTxn
		if one.Commit {
			end = producer.CommitTxn
		}
		if err := end(); err != nil {
			return err
		}
		emit(map[string]bool{"committed": one.Commit})
	}
	return nil
}

// Handler of a group whose member copies each record in a transaction of its own.
type saramaCopier struct {
	saramaMembership
	producer sarama.SyncProducer
	settings settings
	// A producer has one transaction at a time, and each partition has a goroutine.
	turn   *sync.Mutex
	copied chan error
}

func (c saramaCopier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			err := c.copy(one)
			select {
			case c.copied <- err:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c saramaCopier) copy(one *sarama.ConsumerMessage) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	sent := saramaMessages(c.settings.Topic, []record{saramaSeen(one)})
	if err := c.producer.SendMessages(sent); err != nil {
		return err
	}
	if err := c.producer.AddMessageToTxn(one, c.settings.Group, nil); err != nil {
		return err
	}
	return c.producer.CommitTxn()
}

func saramaCopy(s settings) error {
	producer, err := sarama.NewSyncProducer([]string{s.Bootstrap}, saramaConfig(s))
	if err != nil {
		return err
	}
	defer producer.Close()
	reading := s
	reading.TransactionalID, reading.Committed = "", true
	group, err := sarama.NewConsumerGroup([]string{s.Bootstrap}, s.Group, saramaConfig(reading))
	if err != nil {
		return err
	}
	copier := saramaCopier{producer: producer, settings: s, turn: &sync.Mutex{}, copied: make(chan error)}
	ctx, stop := context.WithCancel(context.Background())
	defer group.Close()
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{s.Source}, copier); err != nil && ctx.Err() == nil {
				copier.copied <- err
			}
		}
	}()
	for range s.Count {
		if err := <-copier.copied; err != nil {
			return err
		}
	}
	emit(map[string]int{"copied": s.Count})
	return nil
}

func saramaOffsets(s settings) error {
	return withSaramaClient(s, func(client sarama.Client) error {
		partitions, err := client.Partitions(s.Topic)
		if err != nil {
			return err
		}
		for _, number := range partitions {
			found := map[string]int64{"partition": int64(number)}
			for name, time := range map[string]int64{
				"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest, "by_time": s.TimestampMs,
			} {
				if found[name], err = client.GetOffset(s.Topic, number, time); err != nil {
					return err
				}
			}
			emit(found)
		}
		return nil
	})
}

func saramaDescribeTopic(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error {
		found, err := admin.DescribeTopics([]string{s.Topic})
		if err != nil {
			return err
		}
		if found[0].Err != sarama.ErrNoError {
			return found[0].Err
		}
		for _, partition := range found[0].Partitions {
			emit(map[string]any{"partition": partition.ID, "leader": partition.Leader, "replicas": partition.Replicas})
		}
		return nil
	})
}

func saramaDescribeConfigs(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error {
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: s.Topic})
		if err != nil {
			return err
		}
		for _, config := range found {
			emit(map[string]string{"name": config.Name, "value": config.Value})
		}
		return nil
	})
}

func saramaAlterConfig(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error {
		changes := map[string]sarama.IncrementalAlterConfigsEntry{}
		for key, value := range s.Config {
			changes[key] = sarama.IncrementalAlterConfigsEntry{
				Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
			}
		}
		return admin.IncrementalAlterConfig(sarama.TopicResource, s.Topic, changes, false)
	})
}

func saramaListGroups(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error {
		groups, err := admin.ListConsumerGroups()
		if err != nil {
			return err
		}
		for name := range groups {
			emit(map[string]string{"group": name})
		}
		return nil
	})
}

func saramaGroupOffsets(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error {
		found, err := admin.ListConsumerGroupOffsets(s.Group, nil)
		if err != nil {
			return err
		}
		for number, block := range found.Blocks[s.Topic] {
			if block.Err != sarama.ErrNoError {
				return block.Err
			}
			emit(acknowledgement{number, block.Offset})
		}
		return nil
	})
}

func saramaDeleteGroup(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error { return admin.DeleteConsumerGroup(s.Group) })
}

func saramaDeleteTopic(s settings) error {
	return withSaramaAdmin(s, func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(s.Topic) })
}
