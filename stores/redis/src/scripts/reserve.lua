-- ARGV: nonce, failover, count, ceiling, name, start, max, incarnation. Without a start and max, the sequence has to exist.
-- failover: refuse, or how many ids are left out if another server wrote the sequence.
local here, sequence = server(), load()
local refused = refusal(sequence, here, ARGV[2])
if refused == 'promoted' then
  return { ARGV[1], refused, sequence.replid, here.replid }
elseif refused then
  return { ARGV[1], refused }
end
local new = not sequence
if new and ARGV[6] == '' then
  return { ARGV[1], 'missing' }
end
sequence = sequence or { start = ARGV[6], max = ARGV[7], next = ARGV[6], incarnation = ARGV[8], epoch = '0' }
local was, first, last = '', wide(sequence.next), wide(sequence.max)
if not new and elsewhere(sequence, here) then
  was, first = sequence.replid, plus(first, wide(ARGV[2]))
end
if less(wide(ARGV[4]), last) then
  last = wide(ARGV[4])
end
if less(last, first) then
  return { ARGV[1], 'exhausted', digits(last) }
end
local past, most = plus(first, wide(ARGV[3])), plus(last, { 0, 1 })
if less(most, past) then
  past = most
end
if new then
  redis.call('SADD', KEYS[2], ARGV[5])
end
sequence.next = digits(past)
save(sequence, here)
local granted = answer('granted', sequence)
granted[8], granted[9], granted[10] = digits(first), was, here.replid
return granted
