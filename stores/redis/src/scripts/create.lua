-- ARGV: nonce, name, start, max, incarnation.
local here, sequence = server(), load()
if not here.master then
  return { ARGV[1], 'replica' }
elseif sequence == 'foreign' then
  return { ARGV[1], 'foreign' }
elseif sequence then
  return { ARGV[1], 'exists' }
end
redis.call('SADD', KEYS[2], ARGV[2])
save({ start = ARGV[3], max = ARGV[4], next = ARGV[3], incarnation = ARGV[5], epoch = '0' }, here)
return { ARGV[1], 'done' }
