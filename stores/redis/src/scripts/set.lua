-- ARGV: nonce, the expected state (start, max, next, incarnation, epoch), the new state (max, next, epoch), `next` if the change confirms the next id.
local here, sequence = server(), load()
if not sequence then
  return { ARGV[1], 'missing' }
end
-- Allowed after a promotion too.
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
-- A change that confirms the next id makes this server the last writer. Any other change keeps the last writer.
save(sequence, ARGV[10] == 'next' and here or sequence)
return { ARGV[1], 'done' }
