package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

var franz = actions{
	"create_topic":     franzCreateTopic,
	"produce":          franzProduce,
	"consume":          franzConsume,
	"member":           franzMember,
	"transact":         franzTransact,
	"copy":             franzCopy,
	"offsets":          franzOffsets,
	"describe_topic":   franzDescribeTopic,
	"describe_configs": franzDescribeConfigs,
	"alter_config":     franzAlterConfig,
	"list_groups":      franzListGroups,
	"group_offsets":    franzGroupOffsets,
	"delete_group":     franzDeleteGroup,
	"delete_topic":     franzDeleteTopic,
}

func franzCode(err error) (int16, bool) {
	var found *kerr.Error
	if errors.As(err, &found) {
		return found.Code, true
	}
	return 0, false
}

func franzClient(s settings, options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.SeedBrokers(s.Bootstrap))
	if s.User != "" {
		options = append(options, kgo.SASL(plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()))
	}
	return kgo.NewClient(options...)
}

func withFranzAdmin(s settings, do func(context.Context, *kadm.Client) error) error {
	client, err := franzClient(s)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(context.Background(), kadm.NewClient(client))
}

func franzProducerOptions(s settings) []kgo.Opt {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.UnknownTopicRetries(2),
	}
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options = append(options, kgo.ProducerBatchCompression(codecs[s.Codec]))
	if !s.Idempotent && s.TransactionalID == "" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return options
}

func franzRecords(topic string, batch []record) []*kgo.Record {
	var found []*kgo.Record
	for _, one := range batch {
		sent := &kgo.Record{Topic: topic, Partition: one.Partition, Key: one.Key, Value: one.Value}
		sent.Timestamp = time.UnixMilli(one.TimestampMs)
		for _, header := range one.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		found = append(found, sent)
	}
	return found
}

func franzSeen(one *kgo.Record) record {
	seen := record{one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value, nil}
	for _, found := range one.Headers {
		seen.Headers = append(seen.Headers, header{found.Key, found.Value})
	}
	return seen
}

func franzCreateTopic(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		configs := map[string]*string{}
		for key, value := range s.Config {
			configs[key] = kadm.StringPtr(value)
		}
		_, err := admin.CreateTopic(ctx, s.Partitions, 1, configs, s.Topic)
		return err
	})
}

func franzProduce(s settings) error {
	client, err := franzClient(s, franzProducerOptions(s)...)
	if err != nil {
		return err
	}
	defer client.Close()
	for batch := range batches() {
		records := franzRecords(s.Topic, batch)
		if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			return err
		}
		// The results come in the order of completion; the records know their offsets too.
		for _, one := range records {
			emit(acknowledgement{one.Partition, one.Offset})
		}
	}
	return nil
}

func franzConsume(s settings) error {
	var ends kadm.ListedOffsets
	err := withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) (err error) {
		if ends, err = admin.ListEndOffsets(ctx, s.Topic); err != nil {
			return err
		}
		return ends.Error()
	})
	if err != nil {
		return err
	}
	left := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			left[end.Partition] = end.Offset
			from[end.Partition] = kgo.NewOffset().AtStart()
		}
	})
	options := []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.Topic: from})}
	if s.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := franzClient(s, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			emit(franzSeen(one))
			if one.Offset+1 >= left[one.Partition] {
				delete(left, one.Partition)
			}
		})
	}
	return nil
}

func franzMember(s settings) error {
	client, err := franzClient(s, kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Topic), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	whenInputEnds(stop)
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			client.Close()
			return nil
		}
		// A lost session is told as an error of the poll, and the client joins again by itself.
		var lost *kgo.ErrGroupSession
		if err := fetches.Err(); err != nil && !errors.As(err, &lost) {
			return err
		}
		if err := client.CommitRecords(context.Background(), fetches.Records()...); err != nil {
			return err
		}
		fetches.EachRecord(func(one *kgo.Record) { emit(franzSeen(one)) })
	}
}

func franzTransact(s settings) error {
	client, err := franzClient(s, append(franzProducerOptions(s), kgo.TransactionalID(s.TransactionalID))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	for one := range transactions() {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, franzRecords(s.Topic, one.Records)...).FirstErr(); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(one.Commit)); err != nil {
			return err
		}
		emit(map[string]bool{"committed": one.Commit})
	}
	return nil
}

func franzCopy(s settings) error {
	options := append(franzProducerOptions(s), kgo.SeedBrokers(s.Bootstrap), kgo.TransactionalID(s.TransactionalID),
		kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Source), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx := context.Background()
	for copied := 0; copied < s.Count; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		found := 0
		fetches.EachRecord(func(one *kgo.Record) {
			found++
			session.Produce(ctx, &kgo.Record{
				Topic: s.Topic, Partition: one.Partition, Key: one.Key, Value: one.Value, Headers: one.Headers,
			}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			copied += found
		}
	}
	emit(map[string]int{"copied": s.Count})
	return nil
}

func franzOffsets(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		earliest, err := admin.ListStartOffsets(ctx, s.Topic)
		if err != nil {
			return err
		}
		latest, err := admin.ListEndOffsets(ctx, s.Topic)
		if err != nil {
			return err
		}
		after, err := admin.ListOffsetsAfterMilli(ctx, s.TimestampMs, s.Topic)
		if err != nil {
			return err
		}
		for _, listed := range []kadm.ListedOffsets{earliest, latest, after} {
			if err := listed.Error(); err != nil {
				return err
			}
		}
		latest.Each(func(end kadm.ListedOffset) {
			first, _ := earliest.Lookup(s.Topic, end.Partition)
			timed, _ := after.Lookup(s.Topic, end.Partition)
			emit(map[string]int64{
				"partition": int64(end.Partition), "earliest": first.Offset, "latest": end.Offset, "by_time": timed.Offset,
			})
		})
		return nil
	})
}

func franzDescribeTopic(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		found, err := admin.ListTopics(ctx, s.Topic)
		if err != nil {
			return err
		}
		if err := found[s.Topic].Err; err != nil {
			return err
		}
		for _, partition := range found[s.Topic].Partitions.Sorted() {
			emit(map[string]any{
				"partition": partition.Partition, "leader": partition.Leader, "replicas": partition.Replicas,
			})
		}
		return nil
	})
}

func franzDescribeConfigs(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		described, err := admin.DescribeTopicConfigs(ctx, s.Topic)
		if err != nil {
			return err
		}
		found, err := described.On(s.Topic, nil)
		if err != nil {
			return err
		}
		if found.Err != nil {
			return found.Err
		}
		for _, config := range found.Configs {
			emit(map[string]string{"name": config.Key, "value": config.MaybeValue()})
		}
		return nil
	})
}

func franzAlterConfig(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		var changes []kadm.AlterConfig
		for key, value := range s.Config {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: kadm.StringPtr(value)})
		}
		altered, err := admin.AlterTopicConfigs(ctx, changes, s.Topic)
		if err != nil {
			return err
		}
		_, err = altered.On(s.Topic, func(one *kadm.AlterConfigsResponse) error { return one.Err })
		return err
	})
}

func franzListGroups(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		groups, err := admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		for _, name := range groups.Groups() {
			emit(map[string]string{"group": name})
		}
		return nil
	})
}

func franzGroupOffsets(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		found, err := admin.FetchOffsets(ctx, s.Group)
		if err != nil {
			return err
		}
		for _, one := range found.Sorted() {
			if one.Err != nil {
				return one.Err
			}
			emit(acknowledgement{one.Partition, one.At})
		}
		return nil
	})
}

func franzDeleteGroup(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		deleted, err := admin.DeleteGroup(ctx, s.Group)
		if err != nil {
			return err
		}
		return deleted.Err
	})
}

func franzDeleteTopic(s settings) error {
	return withFranzAdmin(s, func(ctx context.Context, admin *kadm.Client) error {
		deleted, err := admin.DeleteTopic(ctx, s.Topic)
		if err != nil {
			return err
		}
		return deleted.Err
	})
}
