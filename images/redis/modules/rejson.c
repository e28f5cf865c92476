/* A stand-in for RedisJSON: JSON.SET and JSON.GET keep a whole document as a string at the root path. It neither
 * parses the document nor follows a path into it. */
#include "standin.h"

static const char *(*StringPtrLen)(const RedisModuleString *, size_t *);

static int is_root(RedisModuleString *path) {
  size_t length;
  const char *text = StringPtrLen(path, &length);
  return length == 1 && (*text == '$' || *text == '.');
}

static int set(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  if (argc != 4) return WrongArity(ctx);
  if (!is_root(argv[2])) return ReplyWithError(ctx, "ERR this is a stand-in for ReJSON: the root path only");
  return standin_forward(ctx, Call(ctx, "SET", "ss", argv[1], argv[3]));
}

static int get(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  if (argc != 2 && argc != 3) return WrongArity(ctx);
  if (argc == 3 && !is_root(argv[2])) return ReplyWithError(ctx, "ERR this is a stand-in for ReJSON: the root path only");
  return standin_forward(ctx, Call(ctx, "GET", "s", argv[1]));
}

static int standin(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  (void)argv, (void)argc;
  return ReplyWithSimpleString(ctx, "stand-in for ReJSON: JSON.SET and JSON.GET of a whole document, unparsed");
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  int (*fetch)(const char *, void *) = *(int (**)(const char *, void *))ctx;
  (void)argv, (void)argc;
  return standin_init(ctx, "ReJSON", 1) || fetch("RedisModule_StringPtrLen", &StringPtrLen) ||
         CreateCommand(ctx, "JSON.SET", set, "write deny-oom", 1, 1, 1) ||
         CreateCommand(ctx, "JSON.GET", get, "readonly", 1, 1, 1) ||
         CreateCommand(ctx, "JSON.STANDIN", standin, "readonly", 0, 0, 0);
}
