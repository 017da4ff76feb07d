-- ARGV: nonce, as it was seen (start, max, next, incarnation, epoch), as it is to be (max, next, epoch), `next` if it confirms the next id.
local here, sequence = server(), load()
if not sequence then
  return { ARGV[1], 'missing' }
end
-- Also after a promotion.
local refused = refusal(sequence, here, 'allow')
if refused then
  return { ARGV[1], refused }
end
for i = 1, 5 do
  if sequence[FIELDS[i]] ~= ARGV[i + 1] then
    return { ARGV[1], 'changed' }
  end
end
sequence.max, sequence.next, sequence.epoch = ARGV[7], ARGV[8], ARGV[9]
-- A change that confirms the next id makes this server the last writer. Any other change leaves that to `failover`.
save(sequence, ARGV[10] == 'next' and here or sequence)
return { ARGV[1], 'done' }
