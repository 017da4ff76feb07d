-- KEYS[1] is the sequence, KEYS[2] the set of all names. `next` is one past the last id that was reserved, so it can be max + 1.
local FIELDS = { 'start', 'max', 'next', 'incarnation', 'epoch', 'run', 'replid' }

-- Returns the sequence, nil if the key does not exist, or 'foreign' if it does not hold a sequence.
local function load()
  local held = redis.call('HMGET', KEYS[1], 'format', unpack(FIELDS))
  if not held[1] and redis.call('EXISTS', KEYS[1]) == 0 then
    return nil
  end
  local sequence = {}
  for i, field in ipairs(FIELDS) do
    sequence[field] = held[i + 1]
    if not held[i + 1] or (i <= 5 and not string.match(held[i + 1], '^%d+$')) then
      return 'foreign'
    end
  end
  return held[1] == '1' and sequence or 'foreign'
end

-- Saves the sequence. Scripts call this last, so a failed write leaves the sequence unchanged. A replid belongs to one process: if the replid is already stored, so is `run`.
local function save(sequence, here)
  if sequence.replid == here.replid then
    redis.call('HSET', KEYS[1], 'max', sequence.max, 'next', sequence.next, 'epoch', sequence.epoch)
    return
  end
  redis.call('HSET', KEYS[1], 'format', '1', 'start', sequence.start, 'max', sequence.max, 'next', sequence.next,
    'incarnation', sequence.incarnation, 'epoch', sequence.epoch, 'run', run(), 'replid', here.replid)
end

local function answer(word, sequence)
  return { ARGV[1], word, sequence.start, sequence.max, sequence.next, sequence.incarnation, sequence.epoch }
end
