package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
)

// segmentio/kafka-go has no idempotent producer.
var segmentio = actions{
	"create_topic":     segmentioCreateTopic,
	"produce":          segmentioProduce,
	"consume":          segmentioConsume,
	"member":           segmentioMember,
	"offsets":          segmentioOffsets,
	"describe_topic":   segmentioDescribeTopic,
	"describe_configs": segmentioDescribeConfigs,
	"alter_config":     segmentioAlterConfig,
	"list_groups":      segmentioListGroups,
	"group_offsets":    segmentioGroupOffsets,
	"delete_group":     segmentioDeleteGroup,
	"delete_topic":     segmentioDeleteTopic,
}

func segmentioCode(err error) (int16, bool) {
	var many kafka.WriteErrors
	if errors.As(err, &many) {
		for _, one := range many {
			if one != nil {
				return segmentioCode(one)
			}
		}
	}
	var large kafka.MessageTooLargeError
	if errors.As(err, &large) {
		return int16(kafka.MessageSizeTooLarge), true
	}
	var found kafka.Error
	if errors.As(err, &found) {
		return int16(found), true
	}
	return 0, false
}

func segmentioTransport(s settings) *kafka.Transport {
	transport := &kafka.Transport{}
	if s.User != "" {
		transport.SASL = plain.Mechanism{Username: s.User, Password: s.Password}
	}
	return transport
}

func segmentioClient(s settings) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(s.Bootstrap), Transport: segmentioTransport(s), Timeout: 30 * time.Second}
}

// The first error of those that an answer holds by topic or group.
func segmentioFirst(found map[string]error, err error) error {
	for _, one := range found {
		if err == nil {
			err = one
		}
	}
	return err
}

func segmentioSeen(one kafka.Message) record {
	seen := record{int32(one.Partition), one.Offset, one.Time.UnixMilli(), one.Key, one.Value, nil}
	for _, found := range one.Headers {
		seen.Headers = append(seen.Headers, header{found.Key, found.Value})
	}
	return seen
}

func segmentioCreateTopic(s settings) error {
	wanted := kafka.TopicConfig{Topic: s.Topic, NumPartitions: int(s.Partitions), ReplicationFactor: 1}
	for key, value := range s.Config {
		wanted.ConfigEntries = append(wanted.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}}
	answer, err := segmentioClient(s).CreateTopics(context.Background(), request)
	if err != nil {
		return err
	}
	return segmentioFirst(answer.Errors, nil)
}

func segmentioProduce(s settings) error {
	var mutex sync.Mutex
	var acknowledged []kafka.Message
	writer := &kafka.Writer{
		Addr:         kafka.TCP(s.Bootstrap),
		Topic:        s.Topic,
		Transport:    segmentioTransport(s),
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond,
		MaxAttempts:  30,
		Compression: map[string]kafka.Compression{
			"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
		}[s.Codec],
		Balancer: kafka.BalancerFunc(func(one kafka.Message, _ ...int) int { return one.WriterData.(record).numbered() }),
		Completion: func(messages []kafka.Message, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				acknowledged = append(acknowledged, messages...)
			}
		},
	}
	defer writer.Close()
	for batch := range batches() {
		var messages []kafka.Message
		for _, one := range batch {
			sent := kafka.Message{Key: one.Key, Value: one.Value, Time: time.UnixMilli(one.TimestampMs), WriterData: one}
			for _, header := range one.Headers {
				sent.Headers = append(sent.Headers, kafka.Header{Key: header.Key, Value: header.Value})
			}
			messages = append(messages, sent)
		}
		acknowledged = nil
		if err := writer.WriteMessages(context.Background(), messages...); err != nil {
			return err
		}
		mutex.Lock()
		// Batches of several partitions complete in any order, those of one in theirs.
		for _, one := range batch {
			at := slices.IndexFunc(acknowledged, func(found kafka.Message) bool { return found.Partition == int(one.Partition) })
			if at < 0 {
				return errors.New("a message was neither acknowledged nor refused")
			}
			emit(acknowledgement{one.Partition, acknowledged[at].Offset})
			acknowledged = slices.Delete(acknowledged, at, at+1)
		}
		mutex.Unlock()
	}
	return nil
}

func (r record) numbered() int { return int(r.Partition) }

func segmentioEnds(s settings) ([]kafka.PartitionOffsets, error) {
	topics, err := segmentioClient(s).Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{s.Topic}})
	if err != nil {
		return nil, err
	}
	if topics.Topics[0].Error != nil {
		return nil, topics.Topics[0].Error
	}
	var asked []kafka.OffsetRequest
	for _, partition := range topics.Topics[0].Partitions {
		asked = append(asked, kafka.FirstOffsetOf(partition.ID), kafka.LastOffsetOf(partition.ID),
			kafka.TimeOffsetOf(partition.ID, time.UnixMilli(s.TimestampMs)))
	}
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{s.Topic: asked}}
	answer, err := segmentioClient(s).ListOffsets(context.Background(), request)
	if err != nil {
		return nil, err
	}
	for _, one := range answer.Topics[s.Topic] {
		if one.Error != nil {
			return nil, one.Error
		}
	}
	return answer.Topics[s.Topic], nil
}

func segmentioReader(s settings, partition int) *kafka.Reader {
	config := kafka.ReaderConfig{
		Brokers: []string{s.Bootstrap}, Topic: s.Topic, Partition: partition, GroupID: s.Group,
		MaxWait: 20 * time.Millisecond, SessionTimeout: 6 * time.Second, RebalanceTimeout: 6 * time.Second, StartOffset: kafka.FirstOffset, HeartbeatInterval: 200 * time.Millisecond,
		JoinGroupBackoff: 200 * time.Millisecond, ReadBackoffMax: 200 * time.Millisecond, MaxAttempts: 30,
	}
	if s.User != "" {
		mechanism := plain.Mechanism{Username: s.User, Password: s.Password}
		config.Dialer = &kafka.Dialer{Timeout: 10 * time.Second, SASLMechanism: mechanism}
	}
	return kafka.NewReader(config)
}

func segmentioConsume(s settings) error {
	ends, err := segmentioEnds(s)
	if err != nil {
		return err
	}
	for _, end := range ends {
		if end.LastOffset == 0 {
			continue
		}
		reader := segmentioReader(s, end.Partition)
		for {
			one, err := reader.ReadMessage(context.Background())
			if err != nil {
				return err
			}
			emit(segmentioSeen(one))
			if one.Offset+1 >= end.LastOffset {
				break
			}
		}
		reader.Close()
	}
	return nil
}

func segmentioMember(s settings) error {
	reader := segmentioReader(s, 0)
	defer reader.Close()
	ctx, stop := context.WithCancel(context.Background())
	whenInputEnds(stop)
	for {
		one, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = reader.CommitMessages(context.Background(), one)
		}
		if err != nil {
			// The reader tells of a broker that is away, and goes on when it is asked again.
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		emit(segmentioSeen(one))
	}
}

func segmentioOffsets(s settings) error {
	ends, err := segmentioEnds(s)
	if err != nil {
		return err
	}
	for _, end := range ends {
		found := map[string]int64{"partition": int64(end.Partition), "earliest": end.FirstOffset, "latest": end.LastOffset}
		found["by_time"] = -1
		for offset := range end.Offsets {
			found["by_time"] = offset
		}
		emit(found)
	}
	return nil
}

func segmentioDescribeTopic(s settings) error {
	topics, err := segmentioClient(s).Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{s.Topic}})
	if err != nil {
		return err
	}
	if topics.Topics[0].Error != nil {
		return topics.Topics[0].Error
	}
	for _, partition := range topics.Topics[0].Partitions {
		var replicas []int
		for _, replica := range partition.Replicas {
			replicas = append(replicas, replica.ID)
		}
		emit(map[string]any{"partition": partition.ID, "leader": partition.Leader.ID, "replicas": replicas})
	}
	return nil
}

func segmentioDescribeConfigs(s settings) error {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: s.Topic}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	answer, err := segmentioClient(s).DescribeConfigs(context.Background(), request)
	if err != nil {
		return err
	}
	if answer.Resources[0].Error != nil {
		return answer.Resources[0].Error
	}
	for _, config := range answer.Resources[0].ConfigEntries {
		emit(map[string]string{"name": config.ConfigName, "value": config.ConfigValue})
	}
	return nil
}

func segmentioAlterConfig(s settings) error {
	resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: s.Topic}
	for key, value := range s.Config {
		resource.Configs = append(resource.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet,
		})
	}
	request := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{resource}}
	answer, err := segmentioClient(s).IncrementalAlterConfigs(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Resources[0].Error
}

func segmentioListGroups(s settings) error {
	answer, err := segmentioClient(s).ListGroups(context.Background(), &kafka.ListGroupsRequest{})
	if err != nil {
		return err
	}
	for _, group := range answer.Groups {
		emit(map[string]string{"group": group.GroupID})
	}
	return answer.Error
}

func segmentioGroupOffsets(s settings) error {
	request := &kafka.OffsetFetchRequest{GroupID: s.Group}
	answer, err := segmentioClient(s).OffsetFetch(context.Background(), request)
	if err != nil {
		return err
	}
	for _, one := range answer.Topics[s.Topic] {
		if one.Error != nil {
			return one.Error
		}
		emit(acknowledgement{int32(one.Partition), one.CommittedOffset})
	}
	return answer.Error
}

func segmentioDeleteGroup(s settings) error {
	request := &kafka.DeleteGroupsRequest{GroupIDs: []string{s.Group}}
	answer, err := segmentioClient(s).DeleteGroups(context.Background(), request)
	if err != nil {
		return err
	}
	return segmentioFirst(answer.Errors, nil)
}

func segmentioDeleteTopic(s settings) error {
	request := &kafka.DeleteTopicsRequest{Topics: []string{s.Topic}}
	answer, err := segmentioClient(s).DeleteTopics(context.Background(), request)
	if err != nil {
		return err
	}
	return segmentioFirst(answer.Errors, nil)
}
