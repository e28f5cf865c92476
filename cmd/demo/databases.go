package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/roboco/sandboxd/client"
)

// useWithin limits what is done in one database.
const useWithin = 10 * time.Second

// usePostgres stores a vector under a generated UUID and finds it by nearness.
func usePostgres(ctx context.Context, e client.Evidence) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, useWithin)
	defer cancel()
	db, err := pgx.Connect(ctx, e.URL)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	_, err = db.Exec(ctx, `CREATE TABLE notes (id uuid PRIMARY KEY DEFAULT uuid_generate_v4(), text text, at vector(3));
		INSERT INTO notes (text, at) VALUES ('near', '[1,1,1]'), ('far', '[9,9,9]')`)
	if err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	var id, text string
	if err := db.QueryRow(ctx, `SELECT id::text, text FROM notes ORDER BY at <-> '[1,1,2]' LIMIT 1`).Scan(&id, &text); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	if text != "near" {
		return "", fmt.Errorf("read %q, not what is nearest", text)
	}
	return fmt.Sprintf("two vectors stored, the nearest found: %q, row %s", text, id), nil
}

// answers says whether a postgres lets these credentials in.
func answers(ctx context.Context, e client.Evidence) bool {
	ctx, cancel := context.WithTimeout(ctx, useWithin)
	defer cancel()
	db, err := pgx.Connect(ctx, e.URL)
	if err != nil {
		return false
	}
	_ = db.Close(ctx)
	return true
}

// useRedis counts.
func useRedis(ctx context.Context, e client.Evidence) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, useWithin)
	defer cancel()
	opts, err := redis.ParseURL(e.URL)
	if err != nil {
		return "", fmt.Errorf("read its URL: %w", err)
	}
	db := redis.NewClient(opts)
	defer func() { _ = db.Close() }()
	for range 2 {
		if err := db.Incr(ctx, "visits").Err(); err != nil {
			return "", fmt.Errorf("write: %w", err)
		}
	}
	n, err := db.Get(ctx, "visits").Int()
	if err != nil || n != 2 {
		return "", fmt.Errorf("read %d, not 2: %w", n, err)
	}
	return fmt.Sprintf("a counter raised twice reads %d", n), nil
}

// useMongo stores a document and finds it.
func useMongo(ctx context.Context, e client.Evidence) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, useWithin)
	defer cancel()
	db, err := mongo.Connect(options.Client().ApplyURI(e.URL))
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Disconnect(context.WithoutCancel(ctx)) }()
	notes := db.Database("sandbox").Collection("notes")
	if _, err := notes.InsertOne(ctx, bson.M{"text": "remember", "stars": 5}); err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	var found struct {
		Text string `bson:"text"`
	}
	if err := notes.FindOne(ctx, bson.M{"stars": 5}).Decode(&found); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return fmt.Sprintf("a document stored, and found by a field: %q", found.Text), nil
}
