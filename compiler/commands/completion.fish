complete -c xpc -f
complete -c xpc -n __fish_use_subcommand -a "{commands}"
complete -c xpc -n "__fish_seen_subcommand_from list" -a "{kinds}"
complete -c xpc -n "__fish_seen_subcommand_from completion" -a "{shells}"
complete -c xpc -n "__fish_seen_subcommand_from new" -l from -x -a "({recipes})"
complete -c xpc -l format -x -a "(xpc (commandline -opc)[2] --help 2>/dev/null | {formats})"
complete -c xpc -n "not __fish_use_subcommand; and not __fish_seen_subcommand_from list completion" -F
