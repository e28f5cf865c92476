/* A stand-in for RedisBloom: BF.ADD and BF.EXISTS on an exact set, so never a false positive and never small. */
#include "standin.h"

static int add(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  return argc == 3 ? standin_forward(ctx, Call(ctx, "SADD", "ss", argv[1], argv[2])) : WrongArity(ctx);
}

static int exists(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  return argc == 3 ? standin_forward(ctx, Call(ctx, "SISMEMBER", "ss", argv[1], argv[2])) : WrongArity(ctx);
}

static int standin(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  (void)argv, (void)argc;
  return ReplyWithSimpleString(ctx, "stand-in for bf: BF.ADD and BF.EXISTS on an exact set");
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
  (void)argv, (void)argc;
  return standin_init(ctx, "bf", 1) || CreateCommand(ctx, "BF.ADD", add, "write deny-oom", 1, 1, 1) ||
         CreateCommand(ctx, "BF.EXISTS", exists, "readonly", 1, 1, 1) ||
         CreateCommand(ctx, "BF.STANDIN", standin, "readonly", 0, 0, 0);
}
