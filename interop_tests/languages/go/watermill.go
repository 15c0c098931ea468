package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Watermill has publishers and subscribers, and leaves the rest to sarama.
var watermillActions = actions{
	"create_topic": watermillCreateTopic,
	"produce":      watermillProduce,
	"member":       watermillMember,
}

const watermillKey = "key"

func watermillSubscriber(s settings) (*kafka.Subscriber, error) {
	config := kafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.MaxWaitTime = 20 * time.Millisecond
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:                []string{s.Bootstrap},
		Unmarshaler:            kafka.DefaultMarshaler{},
		OverwriteSaramaConfig:  config,
		ConsumerGroup:          s.Group,
		ReconnectRetrySleep:    100 * time.Millisecond,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: s.Partitions, ReplicationFactor: 1},
	}, watermill.NopLogger{})
}

func watermillCreateTopic(s settings) error {
	subscriber, err := watermillSubscriber(s)
	if err != nil {
		return err
	}
	defer subscriber.Close()
	return subscriber.SubscribeInitialize(s.Topic)
}

func watermillProduce(s settings) error {
	config := kafka.DefaultSaramaSyncPublisherConfig()
	config.Producer.Retry.Max = 100
	config.Metadata.Retry.Max = 100
	config.Producer.Compression = saramaConfig(s).Producer.Compression
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: []string{s.Bootstrap},
		Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, one *message.Message) (string, error) {
			return one.Metadata.Get(watermillKey), nil
		}),
		OverwriteSaramaConfig: config,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer publisher.Close()
	for batch := range batches() {
		for _, one := range batch {
			sent := message.NewMessage(watermill.NewUUID(), one.Value)
			sent.Metadata.Set(watermillKey, string(one.Key))
			for _, header := range one.Headers {
				sent.Metadata.Set(header.Key, string(header.Value))
			}
			if err := publisher.Publish(s.Topic, sent); err != nil {
				return err
			}
			emit(map[string]string{"published": sent.UUID})
		}
	}
	return nil
}

// A subscriber of a group; acknowledging a message commits its offset.
func watermillMember(s settings) error {
	subscriber, err := watermillSubscriber(s)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	if err != nil {
		return err
	}
	whenInputEnds(func() { subscriber.Close() })
	for one := range messages {
		partition, known := kafka.MessagePartitionFromCtx(one.Context())
		offset, offsetKnown := kafka.MessagePartitionOffsetFromCtx(one.Context())
		if !known || !offsetKnown {
			return errors.New("a message without partition and offset")
		}
		stamp, _ := kafka.MessageTimestampFromCtx(one.Context())
		key, _ := kafka.MessageKeyFromCtx(one.Context())
		seen := record{partition, offset, stamp.UnixMilli(), key, one.Payload, nil}
		for name, value := range one.Metadata {
			seen.Headers = append(seen.Headers, header{name, []byte(value)})
		}
		one.Ack()
		emit(seen)
	}
	return nil
}
