<?php
// Runs PHP handlers, one job after the other. Alone in its process: nothing of hipq is there.
//
// Its argument is a folder with three pipes. asks and answers are the private channel: lines of JSON come in, lines of JSON
// and counted bytes go out. payloads has the payloads. Programs that a handler starts have none of them. See
// docs/handlers-in-other-languages.md.

namespace Hipq;

const MOST_DATA = 16 << 20;
const MOST_ERROR = 4000;

final class Handler
{
    public string $type;
    /** What before and beforeEach define: the body has them as variables of its own. */
    public array $scope = [];
    public ?\Closure $body;
    public ?\Closure $beforeEach;
    public ?\Closure $afterEach;

    public function __construct(array $told)
    {
        $this->type = $told['type'];
        $this->body = compiled($told['body'], '$payload, $job');
        $this->beforeEach = compiled($told['beforeEach'], '');
        $this->afterEach = compiled($told['afterEach'], '');
        $this->gather(compiled($told['before'], ''));
    }

    public function gather(?\Closure $part): void
    {
        if ($part !== null) {
            collecting(true);
            $part($this->scope);
        }
    }
}

/** On one line with its head, so that line numbers stay right. Neither in our
 * namespace nor in a class: names are what they seem. */
function compiled(string $source, string $names): ?\Closure
{
    if (trim($source) === '') {
        return null;
    }
    $names = $names === '' ? '' : $names . ', ';
    $source = preg_replace('/^\s*<\?php\b/', '', $source);
    return eval('return static function (' . $names . 'array &$hipq_scope) { extract($hipq_scope, EXTR_SKIP | EXTR_REFS);'
        . 'try {' . $source . "\n} finally { \\Hipq\\keep(\$hipq_scope, get_defined_vars()); } };");
}

/** Whether variables that are new are kept: those of before and beforeEach are, those of the body are its own. */
function collecting(?bool $now = null): bool
{
    static $is = false;
    return $now === null ? $is : $is = $now;
}

function keep(array &$scope, array $variables): void
{
    unset($variables['hipq_scope']);
    foreach (collecting() ? $variables : [] as $name => $value) {
        $scope[$name] = $value;
    }
}

function encoded(mixed $data): string
{
    if ($data === null || is_string($data)) {
        return (string) $data;
    }
    return json_encode($data, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION);
}

function understood(mixed $result): array
{
    if (is_int($result)) {
        return [$result, ''];
    }
    if (is_array($result) && count($result) === 2 && array_is_list($result) && is_int($result[0])) {
        return [$result[0], encoded($result[1])];
    }
    return [200, encoded($result)];
}

/** Its name and message; where it happened goes to the log. */
function described(\Throwable $error): string
{
    fwrite(STDERR, $error . "\n");
    return substr(get_class($error) . ': ' . $error->getMessage(), 0, MOST_ERROR);
}

function attempted(callable $work): array
{
    global $hipq_running;
    $hipq_running = true;
    try {
        [$status, $data] = understood($work());
        if (strlen($data) > MOST_DATA) {
            return [413, '', 'it returned ' . strlen($data) . ' bytes; ' . MOST_DATA . ' are allowed'];
        }
        return [$status, $data, ''];
    } catch (\Throwable $error) {
        return [500, '', described($error)];
    } finally {
        $hipq_running = false;
    }
}

function read(int $size): string
{
    global $hipq_payloads;
    $found = '';
    while (strlen($found) < $size) {
        $more = fread($hipq_payloads, min($size - strlen($found), 1 << 20));
        if ($more === false || $more === '') {
            exit(0); // the daemon is gone
        }
        $found .= $more;
    }
    return $found;
}

function write(string $text): void
{
    global $hipq_out;
    while ($text !== '') {
        $sent = @fwrite($hipq_out, $text);
        if (!$sent) {
            exit(0);
        }
        $text = $sent === strlen($text) ? '' : substr($text, $sent);
    }
}

/** To the daemon. What was printed must be on its way before. */
function say(string $kind, int $status = 200, string $data = '', string $error = '', bool $retire = false): void
{
    while (ob_get_level() > 0) {
        ob_end_flush();
    }
    flush();
    $said = ['kind' => $kind, 'status' => $status, 'size' => strlen($data), 'error' => $error, 'retire' => $retire];
    write(json_encode($said, JSON_INVALID_UTF8_SUBSTITUTE) . "\n" . $data);
}

function run_job(Handler $handler, array $told): void
{
    $payload = substr(read($told['size'] + 1), 0, -1);
    write("{\"kind\":\"begun\"}\n");
    $job = (object) ['id' => $told['id'], 'type' => $handler->type, 'attempt' => $told['attempt']];
    collecting(false);
    say('done', ...attempted(fn () => ($handler->body)($payload, $job, $handler->scope)));
}

/** exit() and fatal errors end the context: the last chance to say which it was. */
function ending(): void
{
    global $hipq_running;
    if (!$hipq_running) {
        return;
    }
    $last = error_get_last();
    if ($last !== null && ($last['type'] & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_PARSE))) {
        say('done', 500, '', substr($last['message'], 0, MOST_ERROR), true);
    } else {
        say('exit');
    }
}

/** Without waiting for somebody at the other end: a daemon that died meanwhile never comes. */
function opened(string $path, string $mode): mixed
{
    $pipe = @fopen($path, $mode . 'en') ?: exit(1);
    stream_set_blocking($pipe, true);
    return $pipe;
}

function main(string $folder): void
{
    global $hipq_out, $hipq_payloads, $hipq_running;
    $hipq_running = false;
    $in = opened($folder . '/asks', 'rb');
    $hipq_out = opened($folder . '/answers', 'wb');
    $hipq_payloads = opened($folder . '/payloads', 'rb');
    stream_set_chunk_size($hipq_payloads, 1 << 16);
    register_shutdown_function(ending(...));
    $handlers = [];
    say('hello');
    while (($line = fgets($in)) !== false) {
        $told = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
        $number = $told['handler'];
        switch ($told['do']) {
            case 'job':
                run_job($handlers[$number], $told);
                break;
            case 'forget':
                unset($handlers[$number]);
                break;
            case 'load':
                say('done', ...attempted(function () use (&$handlers, $number, $told) {
                    $handlers[$number] = new Handler($told);
                }));
                break;
            default:
                $handler = $handlers[$number];
                $part = $told['do'] === 'begin' ? $handler->beforeEach : $handler->afterEach;
                say('done', ...attempted(fn () => $handler->gather($part)));
        }
    }
}

main($argv[1]);
