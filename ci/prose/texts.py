"""Writes the texts that Vale cannot find by itself, and reports texts that are too long. See ci/steps/prose.

texts.py SCRATCH FILE…
texts.py --messages FILE…    prints all messages, sorted, to be read in a row

SCRATCH/texts.txt gets messages in string literals of Rust, comments of scripts and configuration, pages of help,
descriptions in JSON and manifests, and subjects of commits, a paragraph each. Line N of SCRATCH/places is the place of
line N of texts.txt.
Prints `PLACE:Rule:message` for each message, line of a Rust comment, test name and commit subject that is over its limit, and for each
message that differs from another only in case, articles or punctuation.
"""
import re, subprocess, sys

MESSAGE, COMMENT, TEST_NAME, SUBJECT = 120, 110, 55, 72

TOKEN = re.compile(r'''(?P<comment>//[^\n]*|/\*.*?\*/)|r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)|"(?P<text>(?:[^"\\]|\\.)*)"'''
                   r'''|'(?:\\.[^']*|[^'\\])'|(?P<test>\#\[cfg\((?:all\()?test\b)|(?P<mark>[{};])''', re.S)
TEST = re.compile(r'#\[(?:\w+::)*test\b[^\n]*\]\s*(?:(?:#\[[^\n]*\]|//[^\n]*)\s*)*(?:pub )?(?:async )?fn (\w+)')
CODE = re.compile(r'\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE TABLE|ALTER|WHERE|VALUES|PRIMARY KEY|bigint)\b|</\w|^#!|setnx')
# The start of a comment line in each kind of file (default `#`; None: it has no comments to check).
LEADS = [(r'\.(rs|mjs|js|go|java|kts?|php)$', '//'), (r'\.lua$', '--'), (r'\.(md|html|css|json|svg|xml|txt|lock|sum|png|pem|mod)$|LICENSE', None)]
SOURCES = re.compile(r'^(?:src|(?:crates|stores|adapters)/[^/]+/src)/(?!.*tests?\b)')


def literals(source):
    """Each string literal outside of tests, with its line. A test ends at the brace or semicolon that ends its item."""
    depth, test = 0, None
    for token in TOKEN.finditer(source):
        if token['test'] and test is None:
            test = depth
        elif token['mark'] == '{':
            depth += 1
        elif token['mark']:
            depth -= token['mark'] == '}'
            test = None if depth == test else test
        elif test is None and (text := token['text'] if token['raw'] is None else token['raw']):
            yield source.count('\n', 0, token.start()) + 1, text if token['raw'] else re.sub(r'\\\n\s*', '', text)


def messages(source):
    for line, text in literals(source):
        text = re.sub(r'\\(["\\\'])', r'\1', text)
        if len(text.split()) >= 4 and re.search(r'[a-z]{3} [a-z]{2}', text) and not CODE.search(text):
            yield line, re.split(r'\\n|\n', text)


def comments(path, lead):
    """Yields each paragraph of comment lines, with the number of its first line. A table row is a paragraph. `#- ` is not a comment."""
    run = []
    for number, line in enumerate([*open(path, errors='replace'), ''], 1):
        text = line.strip()
        comment = text.startswith(lead) and not text.startswith(('#!', '#- ')) and 'shellcheck ' not in text
        text = text.lstrip('#/-:!').strip()
        row = comment and re.search(r'\S {2,}\S', text)
        if run and (row or not comment or not text):
            yield number - len(run), run
            run = []
        if row:
            yield number, [text]
        elif comment and text:
            run.append(text)


def subjects():
    """Subjects of the commits since the branch left main, if main exists."""
    git = lambda *words: subprocess.run(['git', *words], capture_output=True, text=True).stdout.strip()
    base = git('merge-base', 'HEAD', 'origin/main') or git('merge-base', 'HEAD', 'main')
    return [line.split(' ', 1) for line in git('log', '--no-merges', '--format=%h %s', f'{base}..HEAD').splitlines()]


def plain(text):
    """Removes code and placeholders. Adds a capital letter and a period: Vale ends a sentence only at a mark before a capital letter."""
    text = re.sub(r'`[^`]*`|\{[^{}]*\}', 'XXX', text)
    return text[:1].upper() + re.sub(r'(?<![.:?!])$', '.', text[1:], count=1)


def limit(path, line, rule, text, length, most, advice):
    if length > most:
        print(f"{path}:{line}:{rule}:'{text[:60]}' has {length} characters, and may have {most}: {advice}.")


def variants(found):
    """Messages for the same cause have the same words. `found` has each message with its place."""
    first = {}
    for text, place in found:
        text = re.sub(r'`?\{[^{}]*\}:?`?', '{}', text)
        key = re.sub(r'\b(?:the|a|an)\b|[^a-z0-9{} ]', '', text.lower()).split()
        other, where = first.setdefault(tuple(key), (text, place))
        if other.strip('; ') != text.strip('; '):
            print(f"{place}:MessageVariant:'{text[:60]}' has the words of '{other[:60]}' at {where}: write both alike.")


def main(scratch, files):
    texts, places = open(f'{scratch}/texts.txt', 'w'), open(f'{scratch}/places', 'w')

    found = []

    def put(path, line, lines, step=1):
        for n, text in enumerate([*plain('\n'.join(lines)).split('\n'), '']):
            texts.write(text + '\n')
            places.write(f'{path}:{line + n * step}\n')

    for path in files:
        lead = next((lead for name, lead in LEADS if re.search(name, path)), '#')
        if path.endswith(('.json', 'Cargo.toml')):
            for number, line in enumerate(open(path), 1):
                for text in re.findall(r'\b(?:summary|description)"? ?[:=] "((?:[^"\\]|\\.)*)"', line):
                    put(path, number, [text])
        if path.endswith('.rs'):
            source = open(path).read()
            for number, line in enumerate(source.splitlines(), 1):
                if re.match(r' *//', line) and '://' not in line:
                    limit(path, number, 'CommentWidth', line.strip(), len(line), COMMENT, 'wrap it')
            for test in TEST.finditer(source):
                line = source.count('\n', 0, test.start(1)) + 1
                limit(path, line, 'TestName', test[1], len(test[1]), TEST_NAME, 'write unit_condition_result')
            for line, text in messages(source) if SOURCES.match(path) else ():
                found.append((' '.join(text).strip(), f'{path}:{line}'))
                if len(text) == 1:
                    limit(path, line, 'MessageLength', text[0], len(text[0]), MESSAGE, 'write what failed, the value, the fix')
                for part in text:
                    put(path, line, [part])
        elif '/help/' in path and path.endswith('.txt'):
            for number, line in enumerate(open(path), 1):
                put(path, number, [line.strip()])
        elif lead:
            for line, text in comments(path, lead):
                put(path, line, text)
    variants(found)
    for commit, subject in subjects():
        put(f'commit {commit}', 1, [subject], 0)
        limit(f'commit {commit}', 1, 'CommitSubject', subject, len(subject), SUBJECT, 'write `part: verb …`')
        if not re.match(r'[\w.][\w./, +-]*: [a-z]', subject):
            print(f"commit {commit}:1:CommitSubject:'{subject}' does not begin with `part: verb`.")


if sys.argv[1] == '--messages':
    sources = [path for path in sys.argv[2:] if SOURCES.match(path)]
    found = [(' '.join(text), path, line) for path in sources for line, text in messages(open(path).read())]
    print(*(f'{text}  ({path}:{line})' for text, path, line in sorted(found)), sep='\n')
else:
    main(sys.argv[1], sys.argv[2:])
