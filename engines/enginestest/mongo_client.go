package enginestest

import (
	"bytes"
	"context"
	"net"
	"net/url"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// mongoClient speaks to a mongo server, in the database that the connection string names.
type mongoClient struct {
	client *mongo.Client
	db     *mongo.Database
}

func openMongoURL(_ context.Context, address string) (Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	if err != nil {
		return nil, err
	}
	return &mongoClient{client, client.Database(u.Path[1:])}, nil
}

// openMongoEnv has no name of a database to go by: an agent takes the one it likes, here that of its user.
func openMongoEnv(ctx context.Context, env map[string]string) (Client, error) {
	u := url.URL{
		Scheme: "mongodb", User: url.UserPassword(env["USER"], env["PASSWORD"]), Host: net.JoinHostPort(env["HOST"], env["PORT"]),
		Path: "/" + env["USER"], RawQuery: url.Values{"authSource": {env["AUTH_DB"]}}.Encode(),
	}
	return openMongoURL(ctx, u.String())
}

func (c *mongoClient) Write(ctx context.Context, key, value string) error {
	_, err := c.db.Collection("kv").UpdateOne(ctx, bson.M{"_id": key}, bson.M{"$set": bson.M{"value": value}},
		options.UpdateOne().SetUpsert(true))
	return err
}

func (c *mongoClient) Read(ctx context.Context, key string) (string, error) {
	var doc struct{ Value string }
	err := c.db.Collection("kv").FindOne(ctx, bson.M{"_id": key}).Decode(&doc)
	return doc.Value, err
}

func (c *mongoClient) Fill(ctx context.Context) error {
	filler := bson.Binary{Data: bytes.Repeat([]byte("x"), 1<<20)}
	for range 128 {
		docs := make([]any, 8)
		for i := range docs {
			docs[i] = bson.M{"filler": filler}
		}
		if _, err := c.db.Collection("fill").InsertMany(ctx, docs); err != nil {
			return err
		}
	}
	return errNeverFull
}

func (c *mongoClient) Drop(ctx context.Context) error { return c.db.Collection("fill").Drop(ctx) }

func (*mongoClient) Use(_ context.Context, feature string) error { return unknown(feature) }

func (c *mongoClient) Close(ctx context.Context) { _ = c.client.Disconnect(ctx) }
