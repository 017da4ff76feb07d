-- ARGV: nonce, name, and the expected incarnation and epoch, if any.
local here, sequence = server(), load()
if not sequence then
  return { ARGV[1], 'missing' }
end
local refused = refusal(sequence, here, 'allow')
if refused then
  return { ARGV[1], refused }
end
if ARGV[3] and (sequence.incarnation ~= ARGV[3] or sequence.epoch ~= ARGV[4]) then
  return answer('sequence', sequence)
end
redis.call('SREM', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
return { ARGV[1], 'done' }
