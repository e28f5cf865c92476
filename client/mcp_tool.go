package client

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sandboxTool is the tool's definition.
func sandboxTool() *mcp.Tool {
	destroys, closed := true, false
	return &mcp.Tool{
		Name:  ToolName,
		Title: "Get my throwaway databases",
		Description: "Gives you your own throwaway databases (Postgres, Redis, Mongo, as far as your project is opted in) and their credentials. " +
			"Call it again at any time: you get the same sandbox and the same credentials. " +
			"Asking for extensions that a running engine's image cannot activate replaces that one engine: its data and credentials are then new, and reason says so. Everything in it vanishes when your work ends. " +
			"The first call may take a minute; giving up waiting cancels nothing, and the next call joins what is under way.",
		InputSchema:  json.RawMessage(toolInput),
		OutputSchema: json.RawMessage(toolOutput),
		Annotations: &mcp.ToolAnnotations{
			Title: "Get my throwaway databases", DestructiveHint: &destroys, IdempotentHint: true, OpenWorldHint: &closed,
		},
	}
}

// toolInput is the schema of the tool's arguments: shapes, not names.
const toolInput = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "services": {
      "type": ["array", "null"], "minItems": 1, "items": {"type": "string"},
      "description": "Which services to answer with, such as [\"postgres\"]; left out, the project's whole set."
    },
    "extensions": {
      "type": ["object", "null"], "additionalProperties": {"type": "array", "items": {"type": "string"}},
      "description": "Extensions or modules to activate, by service, such as {\"postgres\": [\"vector\"]}."
    }
  }
}`

// toolOutput is the schema of the envelope, as this tool gives it.
const toolOutput = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["status", "task_id", "next", "evidence", "context_briefing", "error", "correlation_id", "request_id", "retryable", "retry_after_ms"],
  "properties": {
    "status": {"type": "string", "enum": ["in_progress", "error"]},
    "task_id": {"type": ["string", "null"], "description": "The task you work on."},
    "next": {"type": ["string", "null"], "description": "What to do next."},
    "context_briefing": {"type": ["string", "null"]},
    "error": {"type": ["string", "null"], "description": "null on success; otherwise its kind."},
    "message": {"type": "string", "description": "Why it was refused, or what failed."},
    "remediate": {"type": "string", "description": "What to do about it."},
    "correlation_id": {"type": "string"},
    "request_id": {"type": "string"},
    "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
    "retry_after_ms": {"type": "integer", "minimum": 0},
    "evidence": {
      "type": "object",
      "description": "The services that were asked for, by name.",
      "additionalProperties": {
        "type": "object",
        "additionalProperties": false,
        "required": ["host", "port", "user", "password", "database", "url", "outcome", "reason", "expires_at", "env"],
        "properties": {
          "host": {"type": "string"},
          "port": {"type": "integer"},
          "user": {"type": ["string", "null"]},
          "password": {"type": "string"},
          "database": {"type": ["string", "null"]},
          "auth_database": {"type": "string"},
          "url": {"type": "string"},
          "outcome": {"type": "string", "enum": ["created", "pooled", "reused", "extended", "replaced"]},
          "reason": {"type": "string"},
          "expires_at": {"type": "string", "format": "date-time"},
          "available_extensions": {"type": "array", "items": {"type": "string"}},
          "available_modules": {"type": "array", "items": {"type": "string"}},
          "env": {
            "type": "object", "additionalProperties": {"type": "string"},
            "description": "Environment variables to export as they stand, for tooling that reads ROBOCO_TEST_*."
          }
        }
      }
    }
  }
}`
