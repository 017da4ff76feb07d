-- ARGV: nonce, failover, name, the new text, the expected text; if the last is absent, the record must not exist.
local here, kept = server(), load()
local refused = refusal(kept, here, ARGV[2])
if refused == 'promoted' then
  return { ARGV[1], 'forgetful' }
elseif refused then
  return { ARGV[1], refused }
end
-- Both are text or nil, and Lua compares text byte by byte.
if (kept and kept.record) ~= ARGV[5] then
  return { ARGV[1], 'changed' }
end
if not kept then
  redis.call('SADD', KEYS[2], ARGV[3])
end
redis.call('HSET', KEYS[1], 'format', '1', 'record', ARGV[4], 'run', run(), 'replid', here.replid)
return { ARGV[1], 'done' }
