# Memory of what a node runs beside its Envoys, over its pods: the table "Other agents" of PERFORMANCE.md.
$agentd << END
1 11.8
10 12.7
50 18.0
250 44.5
1000 142.4
END
$pilot << END
1 22.2
10 115.5
50 530.3
END
$spire << END
1 53.3
10 57.7
50 76.0
END
set logscale xy
set xrange [0.9:1300]
set yrange [8:3000]
set xtics (1, 10, 50, 250, 1000)
set ytics (10, 20, 50, 100, 200, 500, 1000, 2000)
set grid xtics ytics lc rgb '#dddddd'
set border 3
set tics nomirror
set xlabel 'pods of a node, an account each'
set ylabel 'memory (PSS), MiB'
set key top left
plot $pilot with linespoints lw 2 pt 5 ps 0.7 lc rgb '#b3541e' title 'pilot-agent, one in each pod', \
	$spire with linespoints lw 2 pt 9 ps 0.7 lc rgb '#6b6b6b' title 'SPIRE agent: secrets alone, no configuration', \
	$agentd with linespoints lw 2 pt 7 ps 0.7 lc rgb '#1f5fa8' title 'agentd'
