/* A stand-in for RediSearch: it registers the module's name and an empty FT._LIST. It indexes nothing. */
#include "standin.h"

static int list(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  (void)argv;
  return argc == 1 ? ReplyWithArray(ctx, 0) : WrongArity(ctx);
}

static int standin(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  (void)argv, (void)argc;
  return ReplyWithSimpleString(ctx, "stand-in for search: FT._LIST only, no index");
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  (void)argv, (void)argc;
  return standin_init(ctx, "search", 1) || CreateCommand(ctx, "FT._LIST", list, "readonly", 0, 0, 0) ||
         CreateCommand(ctx, "FT.STANDIN", standin, "readonly", 0, 0, 0);
}
