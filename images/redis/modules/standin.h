/* The few calls of Redis' module interface that the stand-in modules use, declared here because Debian packages no
 * header for them. The server hands out each function by name. */
#ifndef ROBOCO_STANDIN_H
#define ROBOCO_STANDIN_H

#include <stddef.h>

#define REDISMODULE_OK 0
#define REDISMODULE_ERR 1
#define REDISMODULE_API_VERSION 1
#define REDISMODULE_READ 1
#define REDISMODULE_WRITE 2
#define REDISMODULE_REPLY_NULL 4

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef int (*RedisModuleCmd)(RedisModuleCtx *, RedisModuleString **, int);

static int (*CreateCommand)(RedisModuleCtx *, const char *name, RedisModuleCmd, const char *flags, int first_key,
                            int last_key, int key_step);
static void (*SetModuleAttribs)(RedisModuleCtx *, const char *name, int version, int api_version);
static int (*ReplyWithSimpleString)(RedisModuleCtx *, const char *);
static int (*ReplyWithCallReply)(RedisModuleCtx *, RedisModuleCallReply *);
static int (*ReplyWithArray)(RedisModuleCtx *, long);
static int (*ReplyWithError)(RedisModuleCtx *, const char *);
static int (*WrongArity)(RedisModuleCtx *);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *, const char *command, const char *format, ...);

/* Fetches the functions and registers the module. The server's table of functions is the context's first field. */
static int standin_init(RedisModuleCtx *ctx, const char *name, int version) {
  int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
  if (get("RedisModule_CreateCommand", &CreateCommand) || get("RedisModule_SetModuleAttribs", &SetModuleAttribs) ||
      get("RedisModule_ReplyWithSimpleString", &ReplyWithSimpleString) ||
      get("RedisModule_ReplyWithCallReply", &ReplyWithCallReply) ||
      get("RedisModule_ReplyWithArray", &ReplyWithArray) || get("RedisModule_ReplyWithError", &ReplyWithError) ||
      get("RedisModule_WrongArity", &WrongArity) || get("RedisModule_Call", &Call))
    return REDISMODULE_ERR;
  SetModuleAttribs(ctx, name, version, REDISMODULE_API_VERSION);
  return REDISMODULE_OK;
}

/* Answers with what a core command replied. */
static inline int standin_forward(RedisModuleCtx *ctx, RedisModuleCallReply *reply) {
  return reply ? ReplyWithCallReply(ctx, reply) : ReplyWithError(ctx, "ERR the stand-in module could not run its command");
}

#endif
