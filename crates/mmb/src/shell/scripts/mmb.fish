# fish completion for mmb. `mmb completion fish` prints this file.
function __mmb_complete
    set -l words (commandline -opc)
    set -e words[1]
    mmb complete -- $words (commandline -ct) 2>/dev/null
    or __fish_complete_path (commandline -ct)
end
complete -c mmb -f -a '(__mmb_complete)'
