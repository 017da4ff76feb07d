-- ARGV: nonce, name.
local here, sequence = server(), load()
if not sequence then
  return { ARGV[1], 'missing' }
end
local refused = refusal(sequence, here, 'allow')
if refused then
  return { ARGV[1], refused }
end
redis.call('SREM', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
return { ARGV[1], 'done' }
