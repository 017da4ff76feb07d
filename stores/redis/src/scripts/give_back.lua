-- ARGV: nonce, incarnation, epoch, the rest's first id, one past its last id.
local here, sequence = server(), load()
if not sequence then
  return { ARGV[1], 'missing' }
end
local refused = refusal(sequence, here, 'allow')
if refused then
  return { ARGV[1], refused }
end
-- If another server wrote the sequence last, these ids may have been granted again there.
local same = sequence.incarnation == ARGV[2] and sequence.epoch == ARGV[3] and sequence.next == ARGV[5]
if not same or elsewhere(sequence, here) or less(wide(ARGV[4]), wide(sequence.start)) then
  return { ARGV[1], 'changed' }
end
sequence.next = ARGV[4]
save(sequence, here)
return { ARGV[1], 'done' }
