-- The tokens of people and tools.

-- name: add_token
INSERT INTO api_tokens (name, digest, role, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING name;

-- name: find_token
SELECT * FROM api_tokens WHERE digest = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2);

-- name: revoke_token
UPDATE api_tokens SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL RETURNING name;

-- name: list_tokens
SELECT * FROM api_tokens ORDER BY name;
