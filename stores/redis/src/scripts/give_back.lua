-- ARGV: nonce, failover, incarnation, epoch, the rest's start, one past its last.
local here, sequence = server(), load()
if not sequence then
  return { ARGV[1], 'missing' }
end
local refused = refusal(sequence, here, ARGV[2])
if refused then
  return { ARGV[1], refused }
end
local same = sequence.incarnation == ARGV[3] and sequence.epoch == ARGV[4] and sequence.next == ARGV[6]
if not same or less(wide(ARGV[5]), wide(sequence.start)) then
  return { ARGV[1], 'changed' }
end
sequence.next = ARGV[5]
save(sequence, here)
return { ARGV[1], 'done' }
